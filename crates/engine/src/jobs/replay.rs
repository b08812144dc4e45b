//! The rules on a few jobs that were brought from elsewhere: for a store in which others change jobs too, and where each
//! request therefore locks the jobs that it is about, decides, and writes back.
//!
//! Nouns: what is *brought* is all that the decision may look at. A job that it looked for and that was not brought is
//! *missed*: then nothing that was decided counts, and all of it is decided again with that job brought too. Jobs that a
//! decision makes get places from [`NEW_FROM`] on, for the store to replace by its own.
//!
//! Deliberately absent: claims and waiting. A store that has its jobs elsewhere has its lines there too.

use std::collections::{BTreeSet, HashSet, VecDeque};
use std::sync::Arc;

use fencehold_contract::job::{JobFilter, JobView, QueueMode};
use fencehold_contract::operation::{
    JobRequest, JobResponse, StoreRequest, StoreResponse, unexpected_response,
};
use fencehold_contract::{Quota, QuotaUsage, StoreError};
use fencehold_core::job::{AttemptProof, JobCommand, JobId, QueueName};
use fencehold_core::ledger::Effect;
use fencehold_core::limits::{CRASHES_AT_ONCE_MAX, TOKEN_MAX};
use fencehold_core::{Event, Namespace, Timestamp, Token};

use super::JobBatch;
use super::archive::{
    Archive, JobBody, JobChange, JobNote, MemoryArchive, StoredJob, StoredSchedule, StoredUnique,
};
use super::known_ids::KnownIds;
use super::read::{stands, view};
use super::table::JobSlot;
use crate::state::{Engine, ResponseBody};
use crate::step::Step;

/// The places of jobs that a decision makes: the first, the second, and so on.
const NEW_FROM: u64 = 1 << 62;

/// All that a decision may look at.
#[derive(Clone, Debug, Default)]
pub struct ReplayInput {
    pub now: Timestamp,
    /// The newest token that was given to any job.
    pub newest: Token,
    /// Tokens set aside for what may be decided, in the order in which they are to be used.
    pub tokens: VecDeque<Token>,
    /// For how long nothing is granted.
    pub closed_ms: u64,
    pub jobs: Vec<ReplayJob>,
    /// Jobs that were looked for, found or not.
    pub known: HashSet<JobId>,
    pub queues: Vec<(Namespace, QueueName, QueueMode)>,
    pub uniques: Vec<StoredUnique>,
    pub schedules: Vec<StoredSchedule>,
    /// What a namespace may have, and what it has of queues, jobs and bytes. `None`: no limit is set, or what is decided keeps to none.
    pub room: Option<(Namespace, Quota, QuotaUsage)>,
}

/// A job with all that belongs to it. Its queue is in its body.
#[derive(Clone, Debug)]
pub struct ReplayJob {
    pub kept: StoredJob,
    pub body: Arc<JobBody>,
    pub notes: Vec<(JobNote, Arc<[u8]>)>,
    pub effects: Vec<Effect>,
    /// The job that it has asked to yield.
    pub victim: Option<JobId>,
}

/// One run of the rules.
#[derive(Debug)]
pub struct Replay {
    engine: Engine,
    /// What was brought.
    archive: MemoryArchive,
    known: HashSet<JobId>,
    tokens: VecDeque<Token>,
    changes: Vec<JobChange>,
    events: Vec<Event>,
    consumed: usize,
}

/// What came of it, as data.
#[derive(Debug, Default)]
pub struct ReplayOutput {
    pub changes: Vec<JobChange>,
    pub events: Vec<Event>,
    /// Jobs that must be brought too before any of this counts.
    pub missed: Vec<JobId>,
    /// How many tokens were used, those set aside among them.
    pub consumed: usize,
}

impl Replay {
    pub fn new(brought: ReplayInput) -> Self {
        let ReplayInput { now, newest, tokens, closed_ms, jobs, known, queues, uniques, schedules, room } =
            brought;
        let mut engine = Engine::new();
        engine.now = now;
        engine.closed_until_ms = if closed_ms == 0 { 0 } else { now.store_ms.saturating_add(closed_ms) };
        engine.jobs.newest = newest;
        engine.jobs.ceiling = Token::new(TOKEN_MAX);
        engine.jobs.last_arrival = NEW_FROM - 1;
        // Every id is looked for: which one is the latest is not known here.
        engine.jobs.ids = KnownIds::up_to(Some(JobId::from_bytes([0xff; 16])));
        let mut archive = MemoryArchive::default();
        archive.missed = Some(BTreeSet::new());
        for (namespace, name, mode) in queues {
            engine.bring_queue(&namespace, &name, mode);
        }
        let mut asking = Vec::new();
        for ReplayJob { mut kept, body, notes, effects, victim } in jobs {
            kept.queue = engine.bring_queue(&body.namespace, &body.queue, QueueMode::Open);
            let (arrival, id) = (kept.arrival, kept.id);
            asking.extend(victim.map(|victim| (id, victim)));
            archive.take(JobChange::Body { arrival, id, body });
            for (what, bytes) in notes {
                archive.take(JobChange::Note { arrival, what, bytes });
            }
            for effect in effects {
                archive.take(JobChange::Effect { arrival, effect });
            }
            if kept.record.state.is_final() {
                archive.take(JobChange::Finished(Box::new(kept)));
            } else {
                archive.take(JobChange::Live(Box::new(kept.clone())));
                let at = engine.jobs.table.insert(kept);
                engine.take_place(at);
            }
        }
        for unique in uniques {
            let space = engine.table.space(&unique.namespace);
            engine.jobs.uniques.restore(space, &unique);
        }
        for schedule in schedules {
            let space = engine.table.space(&schedule.namespace);
            engine.jobs.schedules.restore(now, space, schedule);
        }
        for (contender, victim) in asking {
            match (engine.jobs.table.find(contender), engine.jobs.table.find(victim)) {
                (Some(contender), Some(victim)) => drop(engine.jobs.notices.insert(contender, victim)),
                (Some(_), None) => drop(archive.missed.get_or_insert_default().insert(victim)),
                _ => {}
            }
        }
        if let Some((namespace, limits, has)) = room {
            let space = engine.table.space(&namespace);
            // In place of what was brought, which is among it.
            if let Some(used) = engine.table.used_mut(space) {
                *used = has;
            }
            engine.limits.put(Some(namespace), limits);
        }
        engine.jobs.batch = JobBatch::default();
        engine.jobs.queues.stirred.clear();
        Replay { engine, archive, known, tokens, changes: Vec::new(), events: Vec::new(), consumed: 0 }
    }

    /// What is asked, and its answer.
    pub fn ask(&mut self, namespace: &Namespace, request: JobRequest) -> Result<JobResponse, StoreError> {
        let now = self.engine.now;
        let mut answers =
            self.step(|step| step.engine.ask(now, 0, namespace, StoreRequest::Job(request), step.archive));
        match answers.pop() {
            Some(ResponseBody::Said(Ok(StoreResponse::Job(response)))) => Ok(response),
            Some(ResponseBody::Said(Err(error))) => Err(error),
            Some(ResponseBody::ToRead(read)) => match self.engine.read(now, read, &mut self.archive) {
                Ok((response, _)) => Ok(response),
                Err(message) => Err(StoreError::Unavailable { message }),
            },
            Some(ResponseBody::Said(Ok(_))) | None => Err(unexpected_response()),
        }
    }

    /// Notes which of these claims have run out.
    pub fn expire(&mut self, ids: &[JobId]) {
        let is_herd = ids.len() > CRASHES_AT_ONCE_MAX;
        for id in ids {
            let slot = self.engine.jobs.table.get(*id).filter(|slot| slot.record.claim.is_some());
            if let Some(random) = slot.map(|slot| id.spread(slot.record.token.get())) {
                self.apply(*id, &JobCommand::Expire { random: if is_herd { random } else { 0 } });
            }
        }
    }

    /// Gives jobs back that were handed to a caller that had gone.
    pub fn abandon(&mut self, given: &[(JobId, AttemptProof)]) {
        for (id, by) in given {
            if let Some(at) = self.engine.jobs.table.find(*id) {
                self.step(|step| step.abandon(at, *by));
            }
        }
    }

    /// Fires the schedules that are due, and notes the next moments of the others.
    pub fn fire(&mut self) {
        self.step(|step| {
            step.keep_next_moments();
            step.fire_schedules();
        });
    }

    /// Has the first ready job of a queue ask for room.
    pub fn ask_for_room(&mut self, namespace: &Namespace, queue: &QueueName) {
        let space = self.engine.table.space(namespace);
        if let Some(number) = self.engine.jobs.queues.find(space, queue) {
            self.step(|step| step.ask_for_room(number));
        }
    }

    /// These jobs need no room any more.
    pub fn need_no_room(&mut self, contenders: &[JobId]) {
        self.step(|step| {
            for id in contenders {
                if let Some(at) = step.jobs.table.find(*id) {
                    step.withdraw_notice_for(at);
                }
            }
        });
    }

    /// How these jobs stand, in this order.
    pub fn views(&mut self, ids: &[JobId]) -> Vec<JobView> {
        let now = self.engine.now;
        let view_of = |id: &JobId| {
            self.look_at(*id, |slot, archive| Some(view(now, slot, &*archive.body(slot.arrival).ok()??)))?
        };
        ids.iter().filter_map(view_of).collect()
    }

    pub fn now_ms(&self) -> u64 {
        self.engine.now.store_ms
    }

    /// Whether a job still stands as a filter says.
    pub fn still_stands(&mut self, id: JobId, filter: &JobFilter) -> bool {
        let now = self.engine.now;
        self.look_at(id, |slot, _| stands(now, slot, filter)).unwrap_or(false)
    }

    fn look_at<T>(&mut self, id: JobId, look: impl FnOnce(&JobSlot, &mut MemoryArchive) -> T) -> Option<T> {
        let finished = self.archive.finished(id).ok().flatten().map(JobSlot::of);
        let slot = self.engine.jobs.table.get(id).or(finished.as_ref())?;
        Some(look(slot, &mut self.archive))
    }

    pub fn into_replayed(self) -> ReplayOutput {
        let missed = self
            .archive
            .missed
            .into_iter()
            .flatten()
            .filter(|id| !self.known.contains(id))
            .collect();
        ReplayOutput { changes: self.changes, events: self.events, missed, consumed: self.consumed }
    }

    fn apply(&mut self, id: JobId, command: &JobCommand) {
        if let Some(at) = self.engine.jobs.table.find(id) {
            // What the rules refuse here changes nothing.
            self.step(|step| drop(step.apply_to_job(at, command)));
        }
    }

    /// Takes one step, and what it has changed, as if that had been kept.
    fn step(&mut self, act: impl FnOnce(&mut Step<'_>)) -> Vec<ResponseBody> {
        // The next token that was set aside is the next one to be given.
        if let Some(token) = self.tokens.get(self.consumed) {
            self.engine.jobs.newest = Token::new(token.get().saturating_sub(1));
        }
        let newest = self.engine.jobs.newest;
        act(&mut Step { engine: &mut self.engine, archive: &mut self.archive });
        self.consumed += usize::from(self.engine.jobs.newest > newest);
        let (changes, answers) = self.engine.take_batch(true);
        for change in &changes.jobs {
            self.archive.take(change.clone());
        }
        self.engine.kept();
        self.changes.extend(changes.jobs);
        self.events.extend(changes.events.into_iter().map(Arc::unwrap_or_clone));
        answers.into_iter().map(|answered| answered.result).collect()
    }
}

impl Engine {
    /// The number of a queue that was brought. What it does comes once, before its jobs.
    fn bring_queue(&mut self, namespace: &Namespace, name: &QueueName, mode: QueueMode) -> u32 {
        let space = self.table.space(namespace);
        let number = self.jobs.queues.find_or_insert(space, name);
        let queue = self.jobs.queues.at_mut(number);
        if !std::mem::replace(&mut queue.is_kept, true) {
            queue.mode = mode;
        }
        number
    }
}
