//! What is made under another name until it is whole, by one at a time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use fencehold_contract::{FileUrl, StoreError};
use rustix::fs::{CWD, FlockOperation, OFlags, RenameFlags, flock, renameat_with};

use super::directory::{PRIVATE, make_directory, share_directory, unusable};
use super::permissions::SharedGroup;

/// Opens what has this name, and locks it.
fn lock(path: &Path, open: impl Fn() -> io::Result<File>) -> io::Result<File> {
    loop {
        let opened = open()?;
        flock(&opened, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            rustix::io::Errno::WOULDBLOCK => io::Error::new(
                io::ErrorKind::ResourceBusy,
                format!("another process is at work on {}: wait for the end of that", path.display()),
            ),
            error => error.into(),
        })?;
        // The process that had it may have given it another name, or removed it, between the two.
        let ours = opened.metadata()?;
        match fs::symlink_metadata(path) {
            Ok(there) if (there.dev(), there.ino()) == (ours.dev(), ours.ino()) => return Ok(opened),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file that is written beside its name, and has it when it is whole. What one that was killed has left is written over.
#[derive(Debug)]
pub(super) struct AtomicFile {
    target: PathBuf,
    path: PathBuf,
    is_whole: bool,
    pub(super) file: File,
}

impl AtomicFile {
    /// An empty file for this user alone, beside what it is to become.
    pub(super) fn of(target: &Path) -> io::Result<AtomicFile> {
        let mut path = target.as_os_str().to_owned();
        path.push(".part");
        let path = PathBuf::from(path);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(PRIVATE);
        // A process that may write to this directory does not choose what is written over.
        options.custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
        let file = lock(&path, || options.open(&path))?;
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
        file.set_len(0)?;
        Ok(AtomicFile { target: target.to_owned(), path, is_whole: false, file })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// On the disk under its name, which must still be free.
    pub(super) fn finish(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        renameat_with(CWD, &self.path, CWD, &self.target, RenameFlags::NOREPLACE)?;
        self.is_whole = true;
        let directory = self.target.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or(Path::new(".")))?.sync_all()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // Locked as long as it has this name, so what has it is ours; afterwards it may be anybody's.
        if !self.is_whole {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// A directory within that of a store, to make ready what will be put there: gone with this value. What one that was killed has left is
/// removed.
#[derive(Debug)]
pub struct ScratchDirectory {
    path: PathBuf,
    _lock: File,
}

impl ScratchDirectory {
    /// Makes it, and the directory of the store where there is none.
    pub fn within(store: impl Into<FileUrl>) -> Result<ScratchDirectory, StoreError> {
        let store = store.into();
        let directory = store.directory.as_path();
        let group = store.group.as_deref().map(SharedGroup::find).transpose();
        let group = group.map_err(|why| unusable(directory, why))?;
        let path = directory.join("fencehold.restoring");
        let make = || {
            make_directory(&std::path::absolute(directory)?, group.as_ref())?;
            let mut options = OpenOptions::new();
            options
                .read(true)
                .custom_flags((OFlags::NOFOLLOW | OFlags::DIRECTORY).bits().cast_signed());
            let lock = lock(&path, || {
                loop {
                    DirBuilder::new().recursive(true).mode(0o700).create(&path)?;
                    match options.open(&path) {
                        // The process that had it has removed it between the two.
                        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                        opened => return opened,
                    }
                }
            })?;
            for left in path.read_dir()? {
                fs::remove_file(left?.path())?;
            }
            if let Some(group) = &group {
                share_directory(&path, group)?;
            }
            Ok(lock)
        };
        let lock = make().map_err(|error: io::Error| unusable(directory, error))?;
        Ok(ScratchDirectory { path, _lock: lock })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ScratchDirectory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

    use std::io::Write as _;

    use super::*;

    #[test]
    fn two_who_write_the_same_file_do_not_finish_each_others() {
        let ground = tempfile::tempdir().unwrap();
        let target = ground.path().join("copy");
        let mut first = AtomicFile::of(&target).unwrap();
        first.file.write_all(b"the first").unwrap();
        let refused = AtomicFile::of(&target).unwrap_err();
        assert!(refused.to_string().contains("another process is at work on"), "{refused}");
        first.file.write_all(b", whole").unwrap();
        first.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"the first, whole");
        // The second finds the name taken, and what has it unharmed.
        let mut second = AtomicFile::of(&target).unwrap();
        second.file.write_all(b"the second").unwrap();
        assert_eq!(second.finish().unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(fs::read(&target).unwrap(), b"the first, whole");
        assert_eq!(ground.path().read_dir().unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_a_killed_one_left_is_written_over() {
        let ground = tempfile::tempdir().unwrap();
        let target = ground.path().join("copy");
        let left = ground.path().join("copy.part");
        fs::write(&left, "half of what it was to be, and longer").unwrap();
        fs::set_permissions(&left, Permissions::from_mode(0o644)).unwrap();
        let mut part = AtomicFile::of(&target).unwrap();
        part.file.write_all(b"whole").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"whole");
        assert_eq!(fs::metadata(&target).unwrap().permissions().mode() & 0o777, PRIVATE);
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let ground = tempfile::tempdir().unwrap();
        let theirs = ground.path().join("diary");
        fs::write(&theirs, "dear").unwrap();
        std::os::unix::fs::symlink(&theirs, ground.path().join("copy.part")).unwrap();
        AtomicFile::of(&ground.path().join("copy")).unwrap_err();
        assert_eq!(fs::read(&theirs).unwrap(), b"dear");
    }
}
