//! SQLite itself under the simulation: the real code of `file:` (its statements, its recovery, its takeover) on a
//! simulated disk that loses, tears and reorders what was not synced, fills up, and fails.
//!
//! Nouns: [`SimFiles`] are what is on one simulated disk; the *vfs* is how SQLite gets at them. Locks, the socket and the
//! mark of a failed disk stay real files: they are not SQLite's.

mod files;
mod vfs;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::clock::Clock;
use fencehold_core::Timestamp;
use tempfile::TempDir;

use self::files::SimFiles;
use super::disk::DiskEvent;
use super::random::SimRandom;
use crate::simulated::{ImageState, Machine};

/// Trouble comes at any of the next so many operations of the disk: within one commit, or within the next few.
const OPERATIONS_AHEAD_MAX: u64 = 30;

/// A directory of `file:` whose database is on a simulated disk.
pub(super) struct SimDirectory {
    room: TempDir,
    files: Arc<Mutex<SimFiles>>,
    /// Counts power cuts: which boot it is.
    boot: u64,
    /// The power went since anybody started here.
    booted: bool,
    /// The file system has lost what was not synced since anybody started here.
    lost: bool,
    /// Shared memory: outlives the file system, and no boot.
    memory: TempDir,
}

impl SimDirectory {
    pub(super) fn new() -> Self {
        let room = tempfile::tempdir().expect("a temporary directory");
        let path = std::fs::canonicalize(room.path()).expect("it was just made");
        let files = vfs::mount(&path);
        let memory = tempfile::tempdir().expect("a temporary directory");
        SimDirectory { room, files, boot: 0, booted: false, lost: false, memory }
    }

    fn files(&self) -> MutexGuard<'_, SimFiles> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Becomes the owner, as any process does that opens the directory.
    pub(super) fn starts(
        &mut self,
        now: Timestamp,
        _: ImageState,
    ) -> Result<(Machine, ImageState), StoreError> {
        self.files().open_again();
        let found = match (self.booted, self.is_marked()) {
            (true, _) => ImageState::NewBoot,
            (false, true) => ImageState::FailedDisk,
            (false, false) if self.lost => ImageState::Unsynced,
            (false, false) => ImageState::SameBoot,
        };
        let clock = FixedClock { now, boot: self.boot };
        let machine = Machine::open(self.room.path(), &clock, vfs::write_again, &self.notes());
        if machine.is_err() {
            self.is_left();
        }
        let machine = machine?;
        (self.booted, self.lost) = (false, false);
        Ok((machine, found))
    }

    fn notes(&self) -> PathBuf {
        self.memory.path().join("notes")
    }

    fn forget_notes(&self) {
        let _ = std::fs::remove_dir_all(self.notes());
    }

    /// The file system goes down and comes back on the same boot. In some seeds no note could be left either.
    pub(super) fn loses_unsynced(&mut self, random: &mut SimRandom) -> usize {
        self.lost = true;
        if random.per_mille(250) {
            self.forget_notes();
        }
        self.files().power_cut(random)
    }

    /// Whether an owner has left a note that the disk failed under it.
    fn is_marked(&self) -> bool {
        self.room.path().join("uncertain").exists()
    }

    pub(super) fn meets(&mut self, trouble: DiskEvent, random: &mut SimRandom) {
        let after = random.between(1, OPERATIONS_AHEAD_MAX);
        let seed = random.draw();
        self.files().meets(trouble, after, seed);
    }

    pub(super) fn met(&mut self) -> Vec<DiskEvent> {
        self.files().met()
    }

    pub(super) fn power_is_gone(&self) -> bool {
        self.files().power_is_gone()
    }

    pub(super) fn is_left(&mut self) {
        self.files().is_left();
    }

    /// Returns how many sectors were lost.
    pub(super) fn power_cut(&mut self, random: &mut SimRandom) -> usize {
        self.boot += 1;
        self.booted = true;
        self.forget_notes();
        self.files().power_cut(random)
    }
}

impl Drop for SimDirectory {
    fn drop(&mut self) {
        vfs::unmount(&self.files);
    }
}

/// A clock that stands still: everything that an owner does when it starts happens at once.
#[derive(Debug)]
struct FixedClock {
    now: Timestamp,
    boot: u64,
}

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.now
    }

    fn real_time_until(&self, _: u64) -> Option<Duration> {
        None
    }

    fn on_move(&self, _: Box<dyn Fn() + Send + Sync>) {}

    fn boot(&self) -> Option<String> {
        Some(format!("boot {}", self.boot))
    }
}
