//! Where a fence lives: the folder beside the file, and the lock in it.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_contract::network_file_system;

use super::disk::RealDisk;
use crate::fence::error::FenceError;
use crate::time::ms;

/// How soon one who waits for the lock looks again, at first and at most. A step takes as long as two syncs.
const LOOK_AGAIN_MIN: Duration = Duration::from_micros(100);
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(5);

/// A file and the folder of its fence.
pub(super) struct FenceFolder {
    data: PathBuf,
    fence: PathBuf,
    lock: File,
    timeout: Duration,
}

impl FenceFolder {
    /// Finds the file, which need not be there yet, and makes the folder of its fence.
    pub(super) fn open(path: &Path, timeout: Duration) -> Result<Self, FenceError> {
        let data = real_path(path).map_err(|why| FenceError::unusable(path.display(), why))?;
        let unusable = |why: String| FenceError::unusable(data.display(), why);
        let folder = data.parent().unwrap_or(Path::new("/"));
        let network = network_file_system(folder)
            .map_err(|error| unusable(format!("its folder cannot be looked at: {error}")))?;
        if let Some(name) = network {
            let why = "and a network file system keeps neither locks nor the order of writes";
            return Err(unusable(format!("it is on {name}, {why}")));
        }
        if fs::metadata(&data).is_ok_and(|found| !found.is_file()) {
            return Err(unusable("it is not a plain file".to_owned()));
        }
        let mut name = data.file_name().unwrap_or_default().to_owned();
        name.push(".fence");
        let fence = data.with_file_name(name);
        let lock = make_folder(&fence, folder)
            .and_then(|()| open_lock(&fence))
            .map_err(|error| unusable(format!("{} cannot be made or opened: {error}", fence.display())))?;
        Ok(FenceFolder { data, fence, lock, timeout })
    }

    pub(super) fn disk(&self) -> RealDisk {
        RealDisk::new(&self.data, &self.fence)
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        self.data.display().to_string()
    }

    /// Waits for the lock. It goes with its holder: the kernel drops it when the process dies.
    #[expect(
        clippy::disallowed_methods,
        reason = "the kernel's lock can be waited for only without a time limit"
    )]
    pub(super) fn lock(&mut self) -> Result<FolderLock<'_>, FenceError> {
        let began_ms = SystemClock.now().store_ms;
        let mut pause = LOOK_AGAIN_MIN;
        loop {
            let locked = self.try_lock().map_err(|error| {
                let path = RealDisk::lock_path(&self.fence);
                let why = format_args!("{} cannot be locked: {error}", path.display());
                FenceError::unusable(self.data.display(), why)
            })?;
            if locked {
                return Ok(FolderLock { lock: &self.lock });
            }
            let waited_ms = SystemClock.now().store_ms.saturating_sub(began_ms);
            if waited_ms >= ms(self.timeout) {
                let waited = Duration::from_millis(waited_ms);
                return Err(FenceError::Busy { resource: self.name(), pid: self.locked_by(), waited });
            }
            std::thread::sleep(pause);
            pause = (pause * 2).min(LOOK_AGAIN_MAX);
        }
    }

    fn try_lock(&mut self) -> io::Result<bool> {
        match self.lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(false),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The folder may have been removed: then others lock another file of the same name.
        let mine = self.lock.metadata()?.ino();
        if fs::metadata(RealDisk::lock_path(&self.fence)).is_ok_and(|found| found.ino() == mine) {
            return Ok(true);
        }
        make_folder(&self.fence, self.data.parent().unwrap_or(Path::new("/")))?;
        self.lock = open_lock(&self.fence)?;
        Ok(false)
    }

    /// Who has the lock, as the kernel tells it.
    fn locked_by(&self) -> Option<u32> {
        let inode = format!(":{}", self.lock.metadata().ok()?.ino());
        let locks = fs::read_to_string("/proc/locks").ok()?;
        let line = locks.lines().find(|line| {
            let mut reports = line.split_whitespace();
            reports.any(|word| word == "FLOCK") && reports.any(|word| word.ends_with(&inode))
        })?;
        let pid = line.split_whitespace().skip_while(|word| *word != "WRITE").nth(1)?;
        pid.parse().ok()
    }
}

/// The lock, for as long as this lives.
pub(super) struct FolderLock<'a> {
    lock: &'a File,
}

impl Drop for FolderLock<'_> {
    fn drop(&mut self) {
        // It cannot fail on an open file; if it did, others would wait until this process ends.
        let _ = self.lock.unlock();
    }
}

/// One file under two names would have two fences: links are followed first.
fn real_path(path: &Path) -> Result<PathBuf, String> {
    if let Ok(found) = fs::canonicalize(path) {
        return Ok(found);
    }
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    if fs::symlink_metadata(&path).is_ok() {
        return Err("it is a link that leads nowhere".to_owned());
    }
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Err("it is not the name of a file".to_owned());
    };
    let folder =
        fs::canonicalize(folder).map_err(|error| format!("its folder cannot be reached: {error}"))?;
    Ok(folder.join(name))
}

/// For the user alone, as what is kept in it: the last appends are in the journal too.
fn make_folder(fence: &Path, parent: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(0o700).create(fence) {
        Ok(()) => File::open(parent)?.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

fn open_lock(fence: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(RealDisk::lock_path(fence))
}
