//! A disk that loses, tears and reorders what was not synced, or fails.
//!
//! A batch is written in pieces, and its pieces reach the disk in any order. After a power cut each piece that was not
//! synced is there or is not; what starts from it takes the batches up to the first that is not whole, as a log with
//! checksums does.

use crate::simulated::{BatchRecord, Image, MachineBatch};

use super::plan::SimFault;
use super::random::SimRandom;

#[derive(Default)]
pub(super) struct SimDisk {
    /// What is certainly there.
    synced: Image,
    /// What was written since, with the number of its pieces.
    unsynced: Vec<(BatchRecord, usize)>,
    /// What the next write meets.
    pub(super) next: DiskEvent,
    /// The disk failed under an owner, and the next one knows.
    pub(super) marked: bool,
    /// The power went in the middle of a write.
    pub(super) power_is_gone: bool,
    /// What was met, until it is asked for.
    pub(super) met: Vec<DiskEvent>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum DiskEvent {
    #[default]
    Nothing,
    SyncFails,
    Full,
    WriteFails,
    PowerGoes,
}

impl DiskEvent {
    /// Whose doing it is.
    pub(super) fn fault(self) -> Option<SimFault> {
        match self {
            DiskEvent::Nothing => None,
            DiskEvent::SyncFails => Some(SimFault::SyncFails),
            DiskEvent::Full => Some(SimFault::DiskFull),
            DiskEvent::WriteFails => Some(SimFault::WriteFails),
            DiskEvent::PowerGoes => Some(SimFault::PowerCutInWrite),
        }
    }
}

/// What became of a batch that was to be kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CommitResult {
    Yes,
    /// What it says must not be sent, and it is not there.
    No,
    /// What it says must not be sent, and it is there after all, which only the simulation knows.
    Landed,
    /// What it says must not be sent, and it is not known whether it is there.
    Unknown,
}

impl SimDisk {
    /// Keeps a batch, as durably as it asks.
    pub(super) fn keep(&mut self, batch: &MachineBatch, random: &mut SimRandom) -> CommitResult {
        match std::mem::take(&mut self.next) {
            trouble @ (DiskEvent::Full | DiskEvent::WriteFails) => {
                self.met.push(trouble);
                self.marked = true;
                return CommitResult::No;
            }
            DiskEvent::PowerGoes => {
                self.met.push(DiskEvent::PowerGoes);
                self.unsynced.push((batch.record(), batch.pieces()));
                self.power_is_gone = true;
                return CommitResult::Unknown;
            }
            DiskEvent::SyncFails if batch.is_durable() => {
                self.met.push(DiskEvent::SyncFails);
                self.marked = true;
                let landed = random.per_mille(500);
                if landed {
                    self.unsynced.push((batch.record(), batch.pieces()));
                }
                return if landed { CommitResult::Landed } else { CommitResult::No };
            }
            // A batch that waits for no sync meets it later.
            DiskEvent::SyncFails => self.next = DiskEvent::SyncFails,
            DiskEvent::Nothing => {}
        }
        self.unsynced.push((batch.record(), batch.pieces()));
        if batch.is_durable() {
            self.sync();
        }
        CommitResult::Yes
    }

    pub(super) fn sync(&mut self) {
        for (record, _) in self.unsynced.drain(..) {
            self.synced.apply(&record);
        }
    }

    /// The power goes: what was not synced is whole, torn or gone. Returns how many batches were lost.
    pub(super) fn power_cut(&mut self, random: &mut SimRandom) -> usize {
        let written = self.unsynced.len();
        let mut whole = 0;
        let mut torn = false;
        for (_, pieces) in &self.unsynced {
            let there = (0..*pieces).filter(|_| random.per_mille(800)).count();
            torn |= there < *pieces;
            whole += usize::from(!torn);
        }
        self.unsynced.truncate(whole);
        self.next = DiskEvent::Nothing;
        self.power_is_gone = false;
        written - whole
    }

    /// What the next owner finds: all of it, brought to the disk before anything is answered.
    pub(super) fn open(&mut self) -> &mut Image {
        self.sync();
        &mut self.synced
    }
}
