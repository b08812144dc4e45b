//! A directory that is owned by the caller, without the thread and the socket that would serve it: for a simulation.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use fencehold_contract::clock::Clock;
use fencehold_contract::{KeepFinished, StoreError};
use fencehold_engine::{Archive, Changes, Engine, PersistError, Persistence as _};

use super::directory::{Rewrite, StoreDirectory};
use super::sqlite::SqlitePersistence;
use super::takeover::{Ownership, TakeoverResult, attempt};

/// The owner's hold on a directory.
#[derive(Debug)]
pub struct OwnedDirectory {
    /// How far the store time of the engine is ahead of the clock.
    pub ahead_ms: u64,
    keep: SqlitePersistence,
    _lock: File,
}

impl OwnedDirectory {
    /// Tries once to become the owner.
    pub fn take_over(
        directory: &Path,
        clock: &dyn Clock,
        write_again: Rewrite,
        notes: &Path,
    ) -> Result<(Engine, OwnedDirectory), StoreError> {
        let place = Arc::new(StoreDirectory::open(directory, true, None)?.simulated(write_again, notes));
        match attempt(&place, clock, None, KeepFinished::default(), drop, &|_| false) {
            TakeoverResult::Became(ownership) => {
                let Ownership { engine, ahead_ms, keep, lock, .. } = *ownership;
                Ok((engine, OwnedDirectory { ahead_ms, keep, _lock: lock }))
            }
            TakeoverResult::OwnerLives(epoch) => {
                Err(StoreError::Unavailable { message: format!("the owner of epoch {epoch} lives") })
            }
            TakeoverResult::Blocked(why) => Err(StoreError::Unavailable { message: why }),
            TakeoverResult::Unusable(error) => Err(error),
        }
    }

    /// Keeps a batch.
    pub fn keep(&mut self, changes: &mut Changes) -> Result<(), PersistError> {
        self.keep.keep(changes)
    }

    /// Whether it still owns the directory.
    pub fn confirm(&mut self) -> Result<(), PersistError> {
        self.keep.confirm()
    }

    /// Keeps the files small.
    pub fn tidy(&mut self, idle: bool) -> Result<(), PersistError> {
        self.keep.tidy(idle)
    }

    /// What is kept of jobs, for reading.
    pub fn archive(&mut self) -> &mut dyn Archive {
        self.keep.archive()
    }
}
