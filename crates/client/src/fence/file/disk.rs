//! What the protocol asks of a disk, and the real one. The tests have another, which loses power.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// The files of a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Name {
    /// The file that is protected.
    Data,
    /// What is to become the protected file.
    DataNext,
    Journal,
    /// What is to become the journal.
    JournalNext,
    /// The lock, in which stands how far the journal was in order when it was last let go.
    Lock,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Folder {
    /// The folder of the protected file.
    Data,
    /// The folder of the fence, beside it.
    Fence,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileStat {
    pub(super) inode: u64,
    pub(super) length: u64,
}

/// Everything that the protocol does to a disk.
pub(super) trait Disk {
    /// The file that has this name now, if there is one.
    fn stat(&mut self, name: Name) -> io::Result<Option<FileStat>>;
    /// Up to `length` bytes: fewer where the file ends.
    fn read(&mut self, name: Name, offset: u64, length: u64) -> io::Result<Vec<u8>>;
    /// Makes the file if it is missing.
    fn write(&mut self, name: Name, offset: u64, bytes: &[u8]) -> io::Result<()>;
    fn truncate(&mut self, name: Name, length: u64) -> io::Result<()>;
    fn sync(&mut self, name: Name) -> io::Result<()>;
    /// It need not be there.
    fn remove(&mut self, name: Name) -> io::Result<()>;
    fn rename(&mut self, from: Name, to: Name) -> io::Result<()>;
    fn sync_folder(&mut self, folder: Folder) -> io::Result<()>;
}

/// The disk of this machine.
#[derive(Debug)]
pub(super) struct RealDisk {
    data: PathBuf,
    fence: PathBuf,
    open: Vec<OpenFile>,
}

/// A descriptor is kept for as long as its name leads to the same file: so an inode that is compared is never a reused
/// one, and a failed write-back that another process caused is reported here too.
#[derive(Debug)]
struct OpenFile {
    name: Name,
    inode: u64,
    file: File,
}

impl RealDisk {
    pub(super) fn new(data: &Path, fence: &Path) -> Self {
        RealDisk { data: data.to_owned(), fence: fence.to_owned(), open: Vec::new() }
    }

    pub(super) fn lock_path(fence: &Path) -> PathBuf {
        fence.join("lock")
    }

    fn path(&self, name: Name) -> PathBuf {
        match name {
            Name::Data => self.data.clone(),
            Name::DataNext => self.fence.join("data.next"),
            Name::Journal => self.fence.join("journal"),
            Name::JournalNext => self.fence.join("journal.next"),
            Name::Lock => RealDisk::lock_path(&self.fence),
        }
    }

    fn forget(&mut self, name: Name) {
        self.open.retain(|open| open.name != name);
    }

    fn file(&mut self, name: Name, create: bool) -> io::Result<&File> {
        if let Some(at) = self.open.iter().position(|open| open.name == name) {
            return Ok(&self.open[at].file);
        }
        // What the fence keeps beside the file must not be easier to read than the file.
        let mode = if matches!(name, Name::Data | Name::DataNext) { 0o666 } else { 0o600 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).mode(mode);
        let file = options.open(self.path(name))?;
        if name == Name::DataNext
            && let Ok(before) = fs::metadata(&self.data)
        {
            file.set_permissions(before.permissions())?;
        }
        let inode = file.metadata()?.ino();
        self.open.push(OpenFile { name, inode, file });
        self.open
            .last()
            .map(|open| &open.file)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }
}

impl Disk for RealDisk {
    fn stat(&mut self, name: Name) -> io::Result<Option<FileStat>> {
        let found = match fs::metadata(self.path(name)) {
            Ok(found) => FileStat { inode: found.ino(), length: found.len() },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.forget(name);
                return Ok(None);
            }
            Err(error) => return Err(about(&self.path(name), "cannot be looked at", &error)),
        };
        self.open.retain(|open| open.name != name || open.inode == found.inode);
        Ok(Some(found))
    }

    fn read(&mut self, name: Name, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        let path = self.path(name);
        let read = |file: &File| {
            let left = file.metadata()?.len().saturating_sub(offset).min(length);
            let mut bytes = vec![0; usize::try_from(left).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        };
        self.file(name, false)
            .and_then(read)
            .map_err(|error| about(&path, "cannot be read", &error))
    }

    fn write(&mut self, name: Name, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let path = self.path(name);
        let written = self.file(name, true).and_then(|file| file.write_all_at(bytes, offset));
        written.map_err(|error| about(&path, "cannot be written", &error))
    }

    fn truncate(&mut self, name: Name, length: u64) -> io::Result<()> {
        let path = self.path(name);
        let cut = self.file(name, false).and_then(|file| file.set_len(length));
        cut.map_err(|error| about(&path, "cannot be cut", &error))
    }

    fn sync(&mut self, name: Name) -> io::Result<()> {
        let path = self.path(name);
        let synced = self.file(name, false).and_then(File::sync_data);
        synced.map_err(|error| about(&path, "cannot be synced", &error))
    }

    fn remove(&mut self, name: Name) -> io::Result<()> {
        self.forget(name);
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(about(&self.path(name), "cannot be removed", &error))
            }
            _ => Ok(()),
        }
    }

    fn rename(&mut self, from: Name, to: Name) -> io::Result<()> {
        self.forget(to);
        let renamed = fs::rename(self.path(from), self.path(to));
        renamed.map_err(|error| about(&self.path(to), "cannot be replaced", &error))?;
        if let Some(open) = self.open.iter_mut().find(|open| open.name == from) {
            open.name = to;
        }
        Ok(())
    }

    fn sync_folder(&mut self, folder: Folder) -> io::Result<()> {
        let path = match folder {
            Folder::Fence => &self.fence,
            Folder::Data => self.data.parent().unwrap_or(Path::new("/")),
        };
        let synced = File::open(path).and_then(|folder| folder.sync_all());
        synced.map_err(|error| about(path, "cannot be synced", &error))
    }
}

fn about(path: &Path, what: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{} {what}: {error}", path.display()))
}
