//! What the protocol asks of a disk, and the real one. The tests have another, which loses power.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
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
pub(super) struct RealDisk {
    data: PathBuf,
    fence: PathBuf,
    open: HashMap<Name, OpenFile>,
}

/// A descriptor is kept for as long as its name leads to the same file: so an inode that is compared is never a reused
/// one, and a failed write-back that another process caused is reported here too.
struct OpenFile {
    inode: u64,
    file: File,
}

impl RealDisk {
    pub(super) fn new(data: &Path, fence: &Path) -> Self {
        RealDisk { data: data.to_owned(), fence: fence.to_owned(), open: HashMap::new() }
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

    fn file(&mut self, name: Name, create: bool) -> io::Result<&File> {
        let path = self.path(name);
        let vacant = match self.open.entry(name) {
            Entry::Occupied(open) => return Ok(&open.into_mut().file),
            Entry::Vacant(vacant) => vacant,
        };
        // What the fence keeps beside the file must not be easier to read than the file.
        let mode = if matches!(name, Name::Data | Name::DataNext) { 0o666 } else { 0o600 };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(create).mode(mode);
        let file = options.open(path)?;
        if name == Name::DataNext
            && let Ok(before) = fs::metadata(&self.data)
        {
            file.set_permissions(before.permissions())?;
        }
        let inode = file.metadata()?.ino();
        Ok(&vacant.insert(OpenFile { inode, file }).file)
    }

    /// Does something with a file. What goes wrong is said of its path.
    fn on<T>(
        &mut self,
        name: Name,
        create: bool,
        fails: &str,
        act: impl FnOnce(&File) -> io::Result<T>,
    ) -> io::Result<T> {
        let done = self.file(name, create).and_then(act);
        done.map_err(|error| about(&self.path(name), fails, &error))
    }
}

impl Disk for RealDisk {
    fn stat(&mut self, name: Name) -> io::Result<Option<FileStat>> {
        let found = match fs::metadata(self.path(name)) {
            Ok(found) => FileStat { inode: found.ino(), length: found.len() },
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.open.remove(&name);
                return Ok(None);
            }
            Err(error) => return Err(about(&self.path(name), "cannot be looked at", &error)),
        };
        self.open.retain(|open, file| *open != name || file.inode == found.inode);
        Ok(Some(found))
    }

    fn read(&mut self, name: Name, offset: u64, length: u64) -> io::Result<Vec<u8>> {
        self.on(name, false, "cannot be read", |file| {
            let left = file.metadata()?.len().saturating_sub(offset).min(length);
            let mut bytes = vec![0; usize::try_from(left).map_err(io::Error::other)?];
            file.read_exact_at(&mut bytes, offset)?;
            Ok(bytes)
        })
    }

    fn write(&mut self, name: Name, offset: u64, bytes: &[u8]) -> io::Result<()> {
        self.on(name, true, "cannot be written", |file| file.write_all_at(bytes, offset))
    }

    fn truncate(&mut self, name: Name, length: u64) -> io::Result<()> {
        self.on(name, false, "cannot be cut", |file| file.set_len(length))
    }

    fn sync(&mut self, name: Name) -> io::Result<()> {
        self.on(name, false, "cannot be synced", File::sync_data)
    }

    fn remove(&mut self, name: Name) -> io::Result<()> {
        self.open.remove(&name);
        match fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(about(&self.path(name), "cannot be removed", &error))
            }
            _ => Ok(()),
        }
    }

    fn rename(&mut self, from: Name, to: Name) -> io::Result<()> {
        self.open.remove(&to);
        let renamed = fs::rename(self.path(from), self.path(to));
        renamed.map_err(|error| about(&self.path(to), "cannot be replaced", &error))?;
        if let Some(open) = self.open.remove(&from) {
            self.open.insert(to, open);
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
