//! The engine for a simulation: the same machine that `memory:` and `file:` run, with its time, its requests and its
//! disk in the hands of the simulation. Not part of the public interface, and not of a shipped build.
//!
//! Nouns: a [`Machine`] is an engine; a [`MachineBatch`] is what it hands over to be kept, with the answers that may go out only
//! afterwards; an [`Image`] is what a simulated disk holds, as an owner finds it when it starts. A machine that was
//! opened in a directory keeps its batches in SQLite, as `file:` does.

mod image;
mod job_image;
mod request;

use std::path::Path;

use fencehold_core::{Namespace, Timestamp};

pub(crate) use self::image::{Image, ImageState};
pub(crate) use self::request::{MachineRequest, MachineResponse};
use fencehold_contract::StoreError;
use fencehold_contract::clock::Clock;
use fencehold_engine::{
    Archive, Changes, Engine, Granted, MemoryPersistence, OutgoingResponse, PersistError, Persistence as _,
    Said,
};
use fencehold_store_file::sim::OwnedDirectory;

/// An answer, when its batch is kept.
#[derive(Debug)]
pub(crate) struct ReadyResponse {
    /// Whose question.
    pub(crate) ticket: u64,
    /// The answer.
    pub(crate) result: Result<MachineResponse, StoreError>,
    granted: Option<Granted>,
}

impl ReadyResponse {
    /// Whether it hands out jobs for the first time.
    pub(crate) fn hands_out_jobs(&self) -> bool {
        matches!(self.granted, Some(Granted::Jobs(_)))
    }
}

/// What the steps since the last batch changed and answered.
#[derive(Debug)]
pub(crate) struct MachineBatch {
    changes: Changes,
    /// To go out when the changes are kept, and not before.
    answers: Vec<OutgoingResponse>,
}

impl MachineBatch {
    /// Whether there is something to keep.
    pub(crate) fn changes_something(&self) -> bool {
        !self.changes.is_empty()
    }

    /// Whether an answer of it promises that the changes survive a power cut.
    pub(crate) fn is_durable(&self) -> bool {
        self.changes.durable
    }

    /// How many pieces it is written in.
    pub(crate) fn pieces(&self) -> usize {
        self.changes.rows.len() + self.changes.jobs.len() + self.changes.events.len()
    }

    /// How many answers it has.
    pub(crate) fn answers(&self) -> usize {
        self.answers.len()
    }

    /// The changes, for the disk.
    pub(crate) fn record(&self) -> BatchRecord {
        BatchRecord(self.changes.clone())
    }
}

/// The changes of one batch, as a disk holds them.
#[derive(Clone, Debug)]
pub(crate) struct BatchRecord(Changes);

/// An engine, and what keeps its batches.
#[derive(Debug)]
pub(crate) struct Machine {
    engine: Engine,
    keeps: MachineStorage,
    /// How far the engine's store time is ahead of the clock of the simulation.
    ahead_ms: u64,
}

#[derive(Debug)]
enum MachineStorage {
    /// The simulation keeps the batches; only what the engine reads again is here.
    InMemory(MemoryPersistence),
    InDirectory(Box<OwnedDirectory>),
}

impl MachineStorage {
    fn archive(&mut self) -> &mut dyn Archive {
        match self {
            MachineStorage::InMemory(keep) => keep.archive(),
            MachineStorage::InDirectory(owned) => owned.archive(),
        }
    }
}

impl Default for Machine {
    fn default() -> Self {
        Machine {
            engine: Engine::new(),
            keeps: MachineStorage::InMemory(MemoryPersistence::default()),
            ahead_ms: 0,
        }
    }
}

impl Machine {
    /// An engine that goes on from what a simulated disk holds.
    pub(crate) fn from_image(image: &Image, now: Timestamp, found: ImageState) -> Self {
        let ahead_ms = image.ahead_ms();
        let engine = Engine::from_kept(ahead(now, ahead_ms), image.kept(now, found));
        Machine { engine, keeps: MachineStorage::InMemory(MemoryPersistence::of(image.archive())), ahead_ms }
    }

    /// An engine that goes on from what is kept in a directory, as the new owner of `file:` does. What SQLite does not write itself goes
    /// to the same disk by `write_again`: it writes what can be read of a file once more, and syncs it. `notes` is a directory that is
    /// not on that disk, as shared memory is not.
    pub(crate) fn open(
        directory: &Path,
        clock: &dyn Clock,
        write_again: fn(&Path) -> std::io::Result<()>,
        notes: &Path,
    ) -> Result<Self, StoreError> {
        let (engine, owned) = OwnedDirectory::take_over(directory, clock, write_again, notes)?;
        let ahead_ms = owned.ahead_ms;
        Ok(Machine { engine, keeps: MachineStorage::InDirectory(Box::new(owned)), ahead_ms })
    }

    /// Takes one request. Returns how many answers are there by now.
    pub(crate) fn ask(&mut self, now: Timestamp, ticket: u64, question: MachineRequest) -> usize {
        let now = ahead(now, self.ahead_ms);
        let namespace = Namespace::default();
        self.engine.ask(now, ticket, &namespace, question.ask(), self.keeps.archive());
        self.engine.answers_so_far()
    }

    /// Notes what has run out. True: there is more.
    pub(crate) fn sweep(&mut self, now: Timestamp, budget: usize) -> bool {
        let now = ahead(now, self.ahead_ms);
        self.engine.sweep(now, budget, self.keeps.archive())
    }

    /// The caller of a fresh grant has gone.
    pub(crate) fn abandon(&mut self, now: Timestamp, given: &ReadyResponse) {
        let now = ahead(now, self.ahead_ms);
        match &given.granted {
            None | Some(Granted::Lease { fresh: false, .. }) => {}
            Some(granted) => self.engine.abandon(now, granted.clone(), self.keeps.archive()),
        }
    }

    /// Serves the claims in line, and hands over what was changed and answered. An error: what was kept could not be
    /// read, and nothing may be answered.
    pub(crate) fn take_batch(&mut self, now: Timestamp) -> Result<MachineBatch, String> {
        let now = ahead(now, self.ahead_ms);
        self.engine.serve_claims(now, self.keeps.archive());
        if let Some(why) = self.engine.broken() {
            return Err(why);
        }
        let (changes, answers) = self.engine.take_batch(true);
        Ok(MachineBatch { changes, answers })
    }

    /// Keeps a batch, or makes sure that this machine may answer one that changes nothing.
    pub(crate) fn keep(&mut self, batch: &mut MachineBatch) -> Result<(), String> {
        let changes = &mut batch.changes;
        let kept = match (&mut self.keeps, changes.is_empty()) {
            (MachineStorage::InMemory(_), true) => return Ok(()),
            (MachineStorage::InMemory(keep), false) => keep.keep(changes),
            (MachineStorage::InDirectory(owned), true) => return owned.confirm().map_err(why),
            (MachineStorage::InDirectory(owned), false) => owned.keep(changes),
        };
        kept.map_err(why)?;
        self.engine.kept();
        Ok(())
    }

    /// What a directory needs now and then, when the answers have gone.
    pub(crate) fn tidy(&mut self, idle: bool) -> Result<(), String> {
        match &mut self.keeps {
            MachineStorage::InMemory(_) => Ok(()),
            MachineStorage::InDirectory(owned) => owned.tidy(idle).map_err(why),
        }
    }

    /// The answers of a batch that was kept, and why something of them could not be read.
    pub(crate) fn answers(
        &mut self,
        now: Timestamp,
        batch: MachineBatch,
    ) -> (Vec<ReadyResponse>, Option<String>) {
        let now = ahead(now, self.ahead_ms);
        let mut unreadable = None;
        let mut answers = Vec::with_capacity(batch.answers.len());
        for OutgoingResponse { ticket, result: said, granted } in batch.answers {
            let result = match said {
                Said::ToRead(look) if unreadable.is_none() => {
                    let claims = look.claims();
                    match self.engine.read(now, look, self.keeps.archive()) {
                        // Jobs are claimed one at a time here, and one always has room.
                        Ok((answer, _)) => Ok(answer.into()),
                        Err(why) => {
                            unreadable = Some(why);
                            Ok(claims.map_or(MachineResponse::Other, MachineResponse::ClaimedUnread))
                        }
                    }
                }
                said => untold(said),
            };
            answers.push(ReadyResponse { ticket, result, granted });
        }
        (answers, unreadable)
    }

    /// The responses of a batch that may or may not have been kept, as far as they can be known without reading.
    pub(crate) fn untold(batch: MachineBatch) -> Vec<ReadyResponse> {
        let given = |OutgoingResponse { ticket, result, granted }| {
            let result = untold(result);
            ReadyResponse { ticket, result, granted }
        };
        batch.answers.into_iter().map(given).collect()
    }

    /// When the engine must be woken without a request.
    pub(crate) fn next_due_ms(&self) -> Option<u64> {
        self.engine.next_due_ms().map(|due_ms| due_ms.saturating_sub(self.ahead_ms))
    }
}

/// The same moment, on the clock of an engine whose store time is so much ahead.
fn ahead(now: Timestamp, ahead_ms: u64) -> Timestamp {
    Timestamp { store_ms: now.store_ms + ahead_ms, ..now }
}

fn untold(said: Said) -> Result<MachineResponse, StoreError> {
    match said {
        Said::Said(result) => result.map(MachineResponse::from),
        Said::ToRead(look) => {
            Ok(look.claims().map_or(MachineResponse::Other, MachineResponse::ClaimedUnread))
        }
    }
}

fn why(error: PersistError) -> String {
    match error {
        PersistError::Busy(why) | PersistError::Failed(why) => why,
        PersistError::Superseded => "another process owns the directory".to_owned(),
    }
}
