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
use fencehold_contract::operation::{JobRequest, JobResponse, StoreRequest, StoreResponse};
use fencehold_contract::{Quota, QuotaUsage, StoreError};
use fencehold_core::job::{AttemptProof, JobCommand, JobId};
use fencehold_core::ledger::Effect;
use fencehold_core::limits::TOKEN_MAX;
use fencehold_core::{Event, Namespace, Timestamp, Token};

use super::JobBatch;
use super::archive::{
    Archive, ArchiveRange, ArchiveResult, ArchiveRow, JobBody, JobChange, JobNote, MemoryArchive, StoredJob,
    StoredSchedule, StoredUnique,
};
use super::read::{stands, view};
use crate::state::{Engine, ResponseBody};

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
    pub queues: Vec<(Namespace, fencehold_core::job::QueueName, QueueMode)>,
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
    archive: ReplayArchive,
    now: Timestamp,
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
        engine.closed_until_ms = if closed_ms == 0 { 0 } else { now.store_ms.saturating_add(closed_ms) };
        engine.jobs.newest = newest;
        engine.jobs.ceiling = Token::new(TOKEN_MAX);
        engine.jobs.last_arrival = NEW_FROM - 1;
        // Every id is looked for: which one is the latest is not known here.
        engine.jobs.last_id = Some(JobId::from_bytes([0xff; 16]));
        let mut archive = ReplayArchive { inner: MemoryArchive::default(), known, missed: BTreeSet::new() };
        for (namespace, name, mode) in queues {
            engine.bring_queue(&namespace, &name, mode);
        }
        let mut asking = Vec::new();
        for ReplayJob { mut kept, body, notes, effects, victim } in jobs {
            kept.queue = engine.bring_queue(&body.namespace, &body.queue, QueueMode::Open);
            let (arrival, id) = (kept.arrival, kept.id);
            asking.extend(victim.map(|victim| (id, victim)));
            archive.inner.take(JobChange::Body { arrival, id, body });
            for (what, bytes) in notes {
                archive.inner.take(JobChange::Note { arrival, what, bytes });
            }
            for effect in effects {
                archive.inner.take(JobChange::Effect { arrival, effect });
            }
            if kept.record.state.is_final() {
                archive.inner.take(JobChange::Finished(Box::new(kept)));
            } else {
                archive.inner.take(JobChange::Live(Box::new(kept.clone())));
                let at = engine.jobs.table.insert(kept);
                engine.take_place(now, at);
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
                (Some(_), None) if !archive.known.contains(&victim) => drop(archive.missed.insert(victim)),
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
        Replay { engine, archive, now, tokens, changes: Vec::new(), events: Vec::new(), consumed: 0 }
    }

    /// What is asked, and its answer.
    pub fn ask(&mut self, namespace: &Namespace, ask: JobRequest) -> Result<JobResponse, StoreError> {
        let newest = self.begin();
        self.engine
            .ask(self.now, 0, namespace, StoreRequest::Job(ask), &mut self.archive);
        let mut answers = self.end(newest);
        match answers.pop() {
            Some(ResponseBody::Said(Ok(StoreResponse::Job(answer)))) => Ok(answer),
            Some(ResponseBody::Said(Err(error))) => Err(error),
            Some(ResponseBody::ToRead(look)) => {
                let read = self.engine.read(self.now, look, &mut self.archive);
                read.map(|(answer, _)| answer)
                    .map_err(|why| StoreError::Unavailable { message: why })
            }
            Some(ResponseBody::Said(Ok(_))) | None => {
                Err(fencehold_contract::operation::unexpected_response())
            }
        }
    }

    /// Notes which of these claims have run out.
    pub fn expire(&mut self, ids: &[JobId]) {
        for id in ids {
            let Some(at) = self.engine.jobs.table.find(*id) else { continue };
            let Some(slot) = self.engine.jobs.table.at(at).filter(|slot| slot.record.claim.is_some()) else {
                continue;
            };
            let random = id.spread(slot.record.token.get());
            self.apply(at, &JobCommand::Expire { random });
        }
    }

    /// Gives jobs back that were handed to a caller that had gone.
    pub fn abandon(&mut self, given: &[(JobId, AttemptProof)]) {
        for (id, by) in given {
            if let Some(at) = self.engine.jobs.table.find(*id) {
                self.apply(at, &JobCommand::Abandon(*by));
            }
        }
    }

    /// Fires the schedules that are due, and notes the next moments of the others.
    pub fn fire(&mut self) {
        let newest = self.begin();
        self.engine.keep_next_moments(self.now);
        self.engine.fire_schedules(self.now, &mut self.archive);
        self.end(newest);
    }

    /// Has the first ready job of a queue ask for room.
    pub fn ask_for_room(&mut self, namespace: &Namespace, queue: &fencehold_core::job::QueueName) {
        let space = self.engine.table.space(namespace);
        let Some(number) = self.engine.jobs.queues.find(space, queue) else { return };
        let newest = self.begin();
        self.engine.ask_for_room(self.now, number, &mut self.archive);
        self.end(newest);
    }

    /// These jobs need no room any more.
    pub fn need_no_room(&mut self, contenders: &[JobId]) {
        let newest = self.begin();
        for id in contenders {
            if let Some(at) = self.engine.jobs.table.find(*id) {
                self.engine.withdraw_notice_for(self.now, at, &mut self.archive);
            }
        }
        self.end(newest);
    }

    /// How these jobs stand, in this order.
    pub fn views(&mut self, ids: &[JobId]) -> Vec<JobView> {
        let now = self.now;
        let mut views = Vec::with_capacity(ids.len());
        for id in ids {
            let kept = self.archive.finished(*id).ok().flatten().map(super::table::JobSlot::of);
            let live = self.engine.jobs.table.find(*id).and_then(|at| self.engine.jobs.table.at(at));
            let Some(slot) = live.or(kept.as_ref()) else { continue };
            let body = self.archive.body(slot.arrival).ok().flatten();
            views.extend(body.map(|body| view(now, slot, &body)));
        }
        views
    }

    pub fn now_ms(&self) -> u64 {
        self.now.store_ms
    }

    /// Whether a job still stands as a filter says.
    pub fn still_stands(&mut self, id: JobId, filter: &JobFilter) -> bool {
        let kept = self.archive.finished(id).ok().flatten().map(super::table::JobSlot::of);
        let live = self.engine.jobs.table.find(id).and_then(|at| self.engine.jobs.table.at(at));
        live.or(kept.as_ref()).is_some_and(|slot| stands(self.now, slot, filter))
    }

    pub fn into_replayed(self) -> ReplayOutput {
        let missed = self.archive.missed.into_iter().collect();
        ReplayOutput { changes: self.changes, events: self.events, missed, consumed: self.consumed }
    }

    fn apply(&mut self, at: u32, command: &JobCommand) {
        let newest = self.begin();
        // What the rules refuse here changes nothing.
        let _ = self.engine.apply_to_job(self.now, at, command, &mut self.archive);
        self.end(newest);
    }

    /// Makes the next token that was set aside the next one to be given.
    fn begin(&mut self) -> Token {
        if let Some(token) = self.tokens.get(self.consumed) {
            self.engine.jobs.newest = Token::new(token.get().saturating_sub(1));
        }
        self.engine.jobs.newest
    }

    /// Takes what a step has changed, as if it had been kept.
    fn end(&mut self, newest: Token) -> Vec<ResponseBody> {
        self.consumed += usize::from(self.engine.jobs.newest > newest);
        let (changes, answers) = self.engine.take_batch(true);
        for change in &changes.jobs {
            self.archive.inner.take(change.clone());
        }
        self.engine.kept();
        self.changes.extend(changes.jobs);
        self.events
            .extend(changes.events.into_iter().map(std::sync::Arc::unwrap_or_clone));
        answers.into_iter().map(|answered| answered.result).collect()
    }
}

impl Engine {
    /// The number of a queue that was brought. What it does comes once, before its jobs.
    fn bring_queue(
        &mut self,
        namespace: &Namespace,
        name: &fencehold_core::job::QueueName,
        mode: QueueMode,
    ) -> u32 {
        let space = self.table.space(namespace);
        let number = self.jobs.queues.find_or_insert(space, name);
        let queue = self.jobs.queues.at_mut(number);
        if !std::mem::replace(&mut queue.is_kept, true) {
            queue.mode = mode;
        }
        number
    }
}

/// What was brought, as an archive that notes what it was asked for in vain.
#[derive(Debug)]
struct ReplayArchive {
    inner: MemoryArchive,
    known: HashSet<JobId>,
    missed: BTreeSet<JobId>,
}

impl Archive for ReplayArchive {
    fn finished(&mut self, id: JobId) -> ArchiveResult<Option<StoredJob>> {
        let found = self.inner.finished(id)?;
        if found.is_none() && !self.known.contains(&id) {
            self.missed.insert(id);
        }
        Ok(found)
    }

    fn body(&mut self, arrival: u64) -> ArchiveResult<Option<Arc<JobBody>>> {
        self.inner.body(arrival)
    }

    fn note(&mut self, arrival: u64, what: JobNote) -> ArchiveResult<Option<Arc<[u8]>>> {
        self.inner.note(arrival, what)
    }

    fn effects(&mut self, arrival: u64) -> ArchiveResult<Vec<Effect>> {
        self.inner.effects(arrival)
    }

    fn page(&mut self, rows: ArchiveRange, from: u64, rows_max: usize) -> ArchiveResult<Vec<ArchiveRow>> {
        self.inner.page(rows, from, rows_max)
    }

    fn with_effects(&mut self, from: u64, rows_max: usize) -> ArchiveResult<Vec<(u64, JobId)>> {
        self.inner.with_effects(from, rows_max)
    }
}
