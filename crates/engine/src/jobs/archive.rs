//! What of a job is not in the working state: bodies, notes, effects, and jobs that have come to their end. The engine
//! reads it where it needs it and hands over what changes; `memory:` keeps it in maps, `file:` in tables.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_contract::job::{CompensatedEffect, JobCounts, QueueMode, ScheduleSpec};
use fencehold_core::job::{EffectName, JobId, JobKind, JobRecord, QueueName, ScheduleName, UniqueKey};
use fencehold_core::ledger::Effect;
use fencehold_core::{Namespace, Timestamp, Token};
use hashbrown::HashMap;
use serde::{Deserialize, Serialize};

use crate::persistence::StoredEvents;

/// What never changes about a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobBody {
    pub namespace: Namespace,
    pub queue: QueueName,
    pub kind: JobKind,
    pub payload: Box<str>,
    pub labels: Vec<(Box<str>, Box<str>)>,
    pub trace: Option<Box<str>>,
    pub unique: Option<UniqueKey>,
    pub yield_within_ms: Option<u64>,
    pub enqueued_wall_ms: u64,
    pub undo_of: Option<CompensatedEffect>,
}

/// What a job's holder leaves behind, apart from its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum JobNote {
    Checkpoint,
    Progress,
    Result,
}

/// A job as it is kept: what changes about it. `arrival` is its place among all jobs, and its row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredJob {
    pub arrival: u64,
    pub id: JobId,
    pub queue: u32,
    pub record: JobRecord,
    /// When its claim runs out, in store time. Of a job that has come to its end: when it did; 0: an earlier version did not
    /// note it.
    pub deadline_ms: u64,
    /// How large its body is, and what of it the working state must know.
    pub about: JobSummary,
    /// It had come to its end, and goes on.
    pub reopened: bool,
    /// A renewal of one of its claims may be on record.
    pub renewed: bool,
}

/// What the working state knows of a job's body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobSummary {
    pub bytes: u32,
    /// 0: it asks no holder to yield.
    pub yield_within_ms: u32,
    pub undoes: bool,
}

/// A queue, by its number.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredQueue {
    pub number: u32,
    pub namespace: Namespace,
    pub name: QueueName,
    pub mode: QueueMode,
    /// How many finished jobs it has; the others are counted where they are.
    pub finished: JobCounts,
}

/// A unique key that is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredUnique {
    pub namespace: Namespace,
    pub key: [u8; 16],
    pub job: JobId,
    pub payload: [u8; 16],
    /// In store time.
    pub until_ms: u64,
}

/// A schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredSchedule {
    pub namespace: Namespace,
    pub spec: ScheduleSpec,
    pub next_wall_ms: Option<u64>,
    pub last_wall_ms: Option<u64>,
}

/// One change of what is kept of jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobChange {
    /// A new job's body.
    Body { arrival: u64, id: JobId, body: Arc<JobBody> },
    /// A job that has not come to its end.
    Live(Box<StoredJob>),
    /// A renewal: only the deadline of the claim under this token moved.
    Term { arrival: u64, token: Token, deadline_ms: u64 },
    /// A job that has come to its end.
    Finished(Box<StoredJob>),
    /// A job that is forgotten, with all that belongs to it.
    Drop { arrival: u64 },
    /// What a job's holder left behind.
    Note { arrival: u64, what: JobNote, bytes: Arc<[u8]> },
    /// An effect that was announced or recorded.
    Effect { arrival: u64, effect: Effect },
    /// An effect that did not happen after all.
    NoEffect { arrival: u64, effect: EffectName },
    /// A unique key that is taken.
    Unique(StoredUnique),
    /// A unique key that is free again.
    NoUnique { namespace: Namespace, key: [u8; 16] },
    /// A queue that is new or stands otherwise.
    Queue(StoredQueue),
    /// A queue that is forgotten.
    NoQueue { number: u32 },
    /// A schedule that is new or stands otherwise.
    Schedule(Box<StoredSchedule>),
    /// A schedule that was removed.
    NoSchedule { namespace: Namespace, name: ScheduleName },
    /// Tokens up to this one may have been given.
    TokenCeiling { token: Token },
}

/// Which rows a page looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArchiveRange {
    Live,
    Finished,
    All,
}

/// Reading what is kept. What this batch has changed is not there yet.
pub trait Archive {
    /// A job that has come to its end, by its id.
    fn finished(&mut self, id: JobId) -> ArchiveResult<Option<StoredJob>>;
    /// A job's body.
    fn body(&mut self, arrival: u64) -> ArchiveResult<Option<Arc<JobBody>>>;
    fn note(&mut self, arrival: u64, what: JobNote) -> ArchiveResult<Option<Arc<[u8]>>>;
    /// All effects of a job, in no particular order.
    fn effects(&mut self, arrival: u64) -> ArchiveResult<Vec<Effect>>;
    /// Jobs from this place on, in the order of their arrival; finished ones whole, live ones by place and id.
    fn page(&mut self, rows: ArchiveRange, from: u64, rows_max: usize) -> ArchiveResult<Vec<ArchiveRow>>;
    /// The places of jobs that have effects, from this one on.
    fn with_effects(&mut self, from: u64, rows_max: usize) -> ArchiveResult<Vec<(u64, JobId)>>;
    /// Everything that was left in the archive when the engine began, and how many rows could not be read.
    fn load_jobs(&mut self, _: Timestamp) -> Result<(StoredJobs, u64), StoreError> {
        Ok((StoredJobs::default(), 0))
    }
    /// The events up to this one.
    fn load_events(&mut self, _until_seq: u64) -> Result<StoredEvents, StoreError> {
        Ok(StoredEvents::default())
    }
}

/// A row of a page.
#[derive(Clone, Debug)]
pub struct ArchiveRow {
    pub arrival: u64,
    pub id: JobId,
    pub finished: Option<StoredJob>,
}

/// What reading gives, or what is wrong with the disk.
pub type ArchiveResult<T> = Result<T, String>;

/// Everything that a store of jobs starts from.
#[derive(Debug, Default)]
pub struct StoredJobs {
    pub queues: Vec<StoredQueue>,
    pub live: Vec<StoredJob>,
    pub uniques: Vec<StoredUnique>,
    pub schedules: Vec<StoredSchedule>,
    pub last_arrival: u64,
    pub last_id: Option<JobId>,
    pub token_ceiling: Token,
    /// For how long finished jobs are kept, if that was set.
    pub keep_finished_ms: Option<u64>,
}

/// `memory:`: maps.
#[derive(Clone, Debug, Default)]
pub struct MemoryArchive {
    bodies: BTreeMap<u64, (JobId, Arc<JobBody>)>,
    live: BTreeSet<u64>,
    finished: BTreeMap<u64, StoredJob>,
    ids: HashMap<JobId, u64>,
    notes: HashMap<(u64, JobNote), Arc<[u8]>>,
    effects: BTreeMap<(u64, EffectName), Effect>,
    /// Jobs that were looked for among the finished in vain, where they are noted.
    pub(super) missed: Option<BTreeSet<JobId>>,
}

impl MemoryArchive {
    pub fn take(&mut self, change: JobChange) {
        match change {
            JobChange::Body { arrival, id, body } => {
                self.ids.insert(id, arrival);
                self.bodies.insert(arrival, (id, body));
            }
            JobChange::Live(job) => {
                self.finished.remove(&job.arrival);
                self.live.insert(job.arrival);
            }
            JobChange::Finished(job) => {
                self.live.remove(&job.arrival);
                self.finished.insert(job.arrival, *job);
            }
            JobChange::Drop { arrival } => {
                if let Some((id, _)) = self.bodies.remove(&arrival) {
                    self.ids.remove(&id);
                }
                self.live.remove(&arrival);
                self.finished.remove(&arrival);
                for what in [JobNote::Checkpoint, JobNote::Progress, JobNote::Result] {
                    self.notes.remove(&(arrival, what));
                }
                self.effects.retain(|(at, _), _| *at != arrival);
            }
            JobChange::Note { arrival, what, bytes } => drop(self.notes.insert((arrival, what), bytes)),
            JobChange::Effect { arrival, effect } => {
                self.effects.insert((arrival, effect.name.clone()), effect);
            }
            JobChange::NoEffect { arrival, effect } => drop(self.effects.remove(&(arrival, effect))),
            JobChange::Term { .. }
            | JobChange::Unique(_)
            | JobChange::NoUnique { .. }
            | JobChange::Queue(_)
            | JobChange::NoQueue { .. }
            | JobChange::Schedule(_)
            | JobChange::NoSchedule { .. }
            | JobChange::TokenCeiling { .. } => {}
        }
    }
}

impl Archive for MemoryArchive {
    fn finished(&mut self, id: JobId) -> ArchiveResult<Option<StoredJob>> {
        let found = self.ids.get(&id).and_then(|arrival| self.finished.get(arrival)).cloned();
        if let Some(missed) = self.missed.as_mut().filter(|_| found.is_none()) {
            missed.insert(id);
        }
        Ok(found)
    }

    fn body(&mut self, arrival: u64) -> ArchiveResult<Option<Arc<JobBody>>> {
        Ok(self.bodies.get(&arrival).map(|(_, body)| Arc::clone(body)))
    }

    fn note(&mut self, arrival: u64, what: JobNote) -> ArchiveResult<Option<Arc<[u8]>>> {
        Ok(self.notes.get(&(arrival, what)).cloned())
    }

    fn effects(&mut self, arrival: u64) -> ArchiveResult<Vec<Effect>> {
        let from_here = self.effects.iter().skip_while(|((at, _), _)| *at < arrival);
        let own = from_here.take_while(|((at, _), _)| *at == arrival);
        Ok(own.map(|(_, effect)| effect.clone()).collect())
    }

    fn page(&mut self, rows: ArchiveRange, from: u64, rows_max: usize) -> ArchiveResult<Vec<ArchiveRow>> {
        let row = |arrival: u64| {
            let (id, _) = self.bodies.get(&arrival)?;
            Some(ArchiveRow { arrival, id: *id, finished: self.finished.get(&arrival).cloned() })
        };
        let arrivals: Box<dyn Iterator<Item = &u64>> = match rows {
            ArchiveRange::Live => Box::new(self.live.range(from..)),
            ArchiveRange::Finished => Box::new(self.finished.range(from..).map(|(at, _)| at)),
            ArchiveRange::All => Box::new(self.bodies.range(from..).map(|(at, _)| at)),
        };
        Ok(arrivals.take(rows_max).filter_map(|at| row(*at)).collect())
    }

    fn with_effects(&mut self, from: u64, rows_max: usize) -> ArchiveResult<Vec<(u64, JobId)>> {
        let places: BTreeSet<u64> = self.effects.keys().map(|(at, _)| *at).filter(|at| *at >= from).collect();
        let row = |arrival: u64| Some((arrival, self.bodies.get(&arrival)?.0));
        Ok(places.into_iter().take(rows_max).filter_map(row).collect())
    }
}
