//! A directory that is owned by the caller, without the thread and the socket that would serve it: for a simulation.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use fencehold_contract::clock::Clock;
use fencehold_contract::{KeepFinished, StoreError};
use fencehold_engine::{Archive, Changes, Engine, Keep as _, KeepError};

use super::place::{Place, WriteAgain};
use super::sqlite::SqliteKeep;
use super::takeover::{Attempt, Ownership, attempt};

/// The owner's hold on a directory.
#[derive(Debug)]
pub struct Owned {
    /// How far the store time of the engine is ahead of the clock.
    pub ahead_ms: u64,
    keep: SqliteKeep,
    _lock: File,
}

impl Owned {
    /// Tries once to become the owner.
    pub fn take_over(
        directory: &Path,
        clock: &dyn Clock,
        write_again: WriteAgain,
        notes: &Path,
    ) -> Result<(Engine, Owned), StoreError> {
        let place = Arc::new(Place::open(directory, true, None)?.simulated(write_again, notes));
        match attempt(&place, clock, None, KeepFinished::default(), drop, &|_| false) {
            Attempt::Became(ownership) => {
                let Ownership { engine, ahead_ms, keep, lock, .. } = *ownership;
                Ok((engine, Owned { ahead_ms, keep, _lock: lock }))
            }
            Attempt::OwnerLives(epoch) => {
                Err(StoreError::Unavailable { message: format!("the owner of epoch {epoch} lives") })
            }
            Attempt::Blocked(why) => Err(StoreError::Unavailable { message: why }),
            Attempt::Unusable(error) => Err(error),
        }
    }

    /// Keeps a batch.
    pub fn keep(&mut self, changes: &mut Changes) -> Result<(), KeepError> {
        self.keep.keep(changes)
    }

    /// Whether it still owns the directory.
    pub fn confirm(&mut self) -> Result<(), KeepError> {
        self.keep.confirm()
    }

    /// Keeps the files small.
    pub fn tidy(&mut self, idle: bool) -> Result<(), KeepError> {
        self.keep.tidy(idle)
    }

    /// What is kept of jobs, for reading.
    pub fn archive(&mut self) -> &mut dyn Archive {
        self.keep.archive()
    }
}
