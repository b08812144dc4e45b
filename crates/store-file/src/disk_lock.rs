//! Whose turn it is at the disk: a file lock, taken for every commit, checkpoint and check of the epoch, and for every
//! attempt to take over.
//!
//! SQLite's own lock is not enough where the disk fails: a COMMIT that cannot be synced lets go of it before it returns.
//! A contender could then start from what is there before the owner has noted that it cannot be trusted. A turn ends only
//! when that note is on disk. A process that dies loses its turn with its files; one that is stopped keeps it, and no process
//! can serve safely until it goes on or ends.

use std::fs::File;
use std::io;
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::directory::StoreDirectory;

/// How long one attempt waits for another process's turn to end.
const WAIT: Duration = Duration::from_millis(100);
/// How often to look.
const LOOK: Duration = Duration::from_millis(1);

/// A way to take turns. Dropping it ends a turn that was taken.
#[derive(Debug)]
pub(super) struct DiskLock {
    file: File,
}

impl DiskLock {
    pub(super) fn at(place: &StoreDirectory) -> io::Result<DiskLock> {
        place.turns().map(|file| DiskLock { file })
    }

    /// Waits a little for the turn. False: another process still has it.
    #[expect(clippy::disallowed_methods, reason = "another process needs real time to get on")]
    pub(super) fn take(&self) -> bool {
        for _ in 0..WAIT.as_millis() / LOOK.as_millis() {
            match flock(&self.file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return true,
                Err(Errno::INTR) => {}
                Err(_) => std::thread::sleep(LOOK),
            }
        }
        false
    }

    pub(super) fn end(&self) {
        // It cannot fail for a lock that is held; if it did, it would end with this process.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}
