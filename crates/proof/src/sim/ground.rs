//! What the store stands on: a simulated log, or SQLite itself on a simulated disk.

use fencehold_contract::StoreError;
use fencehold_core::Timestamp;

use super::chance::Chance;
use super::disk::{Disk, Kept, Meets};
use super::mix;
use super::sqlite::Directory;
use crate::simulated::{Batch, Found, Machine};

pub(super) enum Ground {
    Log(Box<Disk>),
    Sqlite(Box<Directory>),
}

impl Ground {
    pub(super) fn new(kind: mix::Ground) -> Self {
        match kind {
            mix::Ground::Log => Ground::Log(Box::default()),
            mix::Ground::Sqlite => Ground::Sqlite(Box::new(Directory::new())),
        }
    }

    /// A machine that goes on from what is there, and what it found. `Ok(None)`: the disk is in trouble, and it must be
    /// tried again.
    pub(super) fn starts(
        &mut self,
        now: Timestamp,
        found: Found,
    ) -> Result<Option<(Machine, Found)>, String> {
        match self {
            Ground::Log(disk) => {
                let marked = std::mem::take(&mut disk.marked);
                let found = if marked && found == Found::SameBoot { Found::FailedDisk } else { found };
                let image = disk.open();
                *image = image.rebased(now, found);
                Ok(Some((Machine::from_image(image, now, Found::SameBoot), found)))
            }
            Ground::Sqlite(directory) => match directory.starts(now, found) {
                Ok(started) => Ok(Some(started)),
                Err(StoreError::Unusable { message: why, .. }) => {
                    Err(format!("P6: the store cannot be used again: {why}"))
                }
                Err(_) => Ok(None),
            },
        }
    }

    /// Has a batch kept.
    pub(super) fn keep(&mut self, machine: &mut Machine, batch: &mut Batch, chance: &mut Chance) -> Kept {
        match self {
            Ground::Log(disk) => {
                let kept = if batch.changes_something() { disk.keep(batch, chance) } else { Kept::Yes };
                // What the machine reads again is no part of the disk; it cannot fail.
                if matches!(kept, Kept::Yes | Kept::Landed) && machine.keep(batch).is_err() {
                    return Kept::No;
                }
                kept
            }
            Ground::Sqlite(_) => {
                let changes = batch.changes_something();
                match machine.keep(batch) {
                    Ok(()) => Kept::Yes,
                    Err(_) if changes => Kept::Unknown,
                    Err(_) => Kept::No,
                }
            }
        }
    }

    /// The next write meets this.
    pub(super) fn meets(&mut self, trouble: Meets, chance: &mut Chance) {
        match self {
            Ground::Log(disk) => disk.next = trouble,
            Ground::Sqlite(directory) => directory.meets(trouble, chance),
        }
    }

    /// What was met since it was asked for.
    pub(super) fn met(&mut self) -> Vec<Meets> {
        match self {
            Ground::Log(disk) => std::mem::take(&mut disk.met),
            Ground::Sqlite(directory) => directory.met(),
        }
    }

    /// Whether the power went in the middle of a write.
    pub(super) fn power_is_gone(&self) -> bool {
        match self {
            Ground::Log(disk) => disk.power_is_gone,
            Ground::Sqlite(directory) => directory.power_is_gone(),
        }
    }

    /// The process is gone: what it had written is there, synced or not. Called before the machine is dropped.
    pub(super) fn is_left(&mut self) {
        if let Ground::Sqlite(directory) = self {
            directory.is_left();
        }
    }

    /// The file system loses what was not synced, and the machine goes on. Says what was lost.
    pub(super) fn loses_unsynced(&mut self, chance: &mut Chance) -> String {
        match self {
            Ground::Log(disk) => {
                disk.marked = true;
                format!("{} batches that were not synced are lost", disk.power_cut(chance))
            }
            Ground::Sqlite(directory) => {
                format!("{} sectors that were not synced are lost", directory.loses_unsynced(chance))
            }
        }
    }

    /// The power goes: what was not synced is whole, torn or gone. Says what was lost.
    pub(super) fn power_cut(&mut self, chance: &mut Chance) -> String {
        match self {
            Ground::Log(disk) => {
                format!("{} batches that were not synced are lost", disk.power_cut(chance))
            }
            Ground::Sqlite(directory) => {
                format!("{} sectors that were not synced are lost", directory.power_cut(chance))
            }
        }
    }
}
