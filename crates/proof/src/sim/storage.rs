//! What the store stands on: a simulated log, or SQLite itself on a simulated disk.

use fencehold_contract::StoreError;
use fencehold_core::Timestamp;

use super::disk::{CommitResult, DiskEvent, SimDisk};
use super::plan;
use super::random::SimRandom;
use super::sqlite::SimDirectory;
use crate::simulated::{ImageState, Machine, MachineBatch};

pub(super) enum Storage {
    Log(Box<SimDisk>),
    Sqlite(Box<SimDirectory>),
}

impl Storage {
    pub(super) fn new(kind: plan::StorageKind) -> Self {
        match kind {
            plan::StorageKind::Log => Storage::Log(Box::default()),
            plan::StorageKind::Sqlite => Storage::Sqlite(Box::new(SimDirectory::new())),
        }
    }

    /// A machine that goes on from what is there, and what it found. `Ok(None)`: the disk is in trouble, and it must be
    /// tried again.
    pub(super) fn starts(
        &mut self,
        now: Timestamp,
        found: ImageState,
    ) -> Result<Option<(Machine, ImageState)>, String> {
        match self {
            Storage::Log(disk) => {
                let marked = std::mem::take(&mut disk.marked);
                let found =
                    if marked && found == ImageState::SameBoot { ImageState::FailedDisk } else { found };
                let image = disk.open();
                *image = image.rebased(now, found);
                Ok(Some((Machine::from_image(image, now, ImageState::SameBoot), found)))
            }
            Storage::Sqlite(directory) => match directory.starts(now, found) {
                Ok(started) => Ok(Some(started)),
                Err(StoreError::Unusable { message: why, .. }) => {
                    Err(format!("P6: the store cannot be used again: {why}"))
                }
                Err(_) => Ok(None),
            },
        }
    }

    /// Has a batch kept.
    pub(super) fn keep(
        &mut self,
        machine: &mut Machine,
        batch: &mut MachineBatch,
        random: &mut SimRandom,
    ) -> CommitResult {
        match self {
            Storage::Log(disk) => {
                let kept =
                    if batch.changes_something() { disk.keep(batch, random) } else { CommitResult::Yes };
                // What the machine reads again is no part of the disk; it cannot fail.
                if matches!(kept, CommitResult::Yes | CommitResult::Landed) && machine.keep(batch).is_err() {
                    return CommitResult::No;
                }
                kept
            }
            Storage::Sqlite(_) => {
                let changes = batch.changes_something();
                match machine.keep(batch) {
                    Ok(()) => CommitResult::Yes,
                    Err(_) if changes => CommitResult::Unknown,
                    Err(_) => CommitResult::No,
                }
            }
        }
    }

    /// The next write meets this.
    pub(super) fn meets(&mut self, trouble: DiskEvent, random: &mut SimRandom) {
        match self {
            Storage::Log(disk) => disk.next = trouble,
            Storage::Sqlite(directory) => directory.meets(trouble, random),
        }
    }

    /// What was met since it was asked for.
    pub(super) fn met(&mut self) -> Vec<DiskEvent> {
        match self {
            Storage::Log(disk) => std::mem::take(&mut disk.met),
            Storage::Sqlite(directory) => directory.met(),
        }
    }

    /// Whether the power went in the middle of a write.
    pub(super) fn power_is_gone(&self) -> bool {
        match self {
            Storage::Log(disk) => disk.power_is_gone,
            Storage::Sqlite(directory) => directory.power_is_gone(),
        }
    }

    /// The process is gone: what it had written is there, synced or not. Called before the machine is dropped.
    pub(super) fn is_left(&mut self) {
        if let Storage::Sqlite(directory) = self {
            directory.is_left();
        }
    }

    /// The file system loses what was not synced, and the machine goes on. Says what was lost.
    pub(super) fn loses_unsynced(&mut self, random: &mut SimRandom) -> String {
        match self {
            Storage::Log(disk) => {
                disk.marked = true;
                format!("{} batches that were not synced are lost", disk.power_cut(random))
            }
            Storage::Sqlite(directory) => {
                format!("{} sectors that were not synced are lost", directory.loses_unsynced(random))
            }
        }
    }

    /// The power goes: what was not synced is whole, torn or gone. Says what was lost.
    pub(super) fn power_cut(&mut self, random: &mut SimRandom) -> String {
        match self {
            Storage::Log(disk) => {
                format!("{} batches that were not synced are lost", disk.power_cut(random))
            }
            Storage::Sqlite(directory) => {
                format!("{} sectors that were not synced are lost", directory.power_cut(random))
            }
        }
    }
}
