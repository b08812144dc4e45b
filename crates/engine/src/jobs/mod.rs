//! The jobs of an engine: the working state of every job that has not come to its end.
//!
//! Nouns: a *slot* is such a job; its *arrival* is its place among all jobs, for life. The *archive* is where the rest is
//! kept. A *look* is an answer that is read from the archive once the changes of its batch have been kept.
//!
//! Claims are served once a batch, in the order in which they came, after everything else of the batch was decided: so
//! those who wait are served before those who just came, and one sync serves them all.

mod admin;
mod archive;
mod batch;
mod canonical;
mod claim;
mod enqueue;
mod ledger;
mod operation;
mod placement;
mod prune;
mod queues;
mod read;
mod replay;
mod report;
mod restore;
mod schedule;
mod sweep;
mod table;
mod used_hold_ids;
mod wait;

use std::collections::BTreeSet;
use std::sync::Arc;

use fencehold_core::job::{
    AttemptProof, JobCommand, JobCommandResult, JobDecision, JobId, JobRefusal, JobStanding, WeightedTurns,
    decide,
};
use fencehold_core::lease::{DeadlineChange as Deadline, HoldState};
use fencehold_core::ledger::Effect;
use fencehold_core::{HoldHash, Key, Namespace, Timestamp, Token};
use hashbrown::HashMap;

pub use archive::{Archive, ArchiveResult, JobBody, JobChange, MemoryArchive};
pub use archive::{ArchiveRange, ArchiveRow, StoredJobs, StoredQueue};
pub use archive::{JobNote, JobSummary, StoredJob, StoredSchedule, StoredUnique};
pub use enqueue::{digest, unique_digest};
pub(crate) use read::ArchiveRead;
pub use replay::{Replay, ReplayInput, ReplayJob, ReplayOutput};

use fencehold_contract::StoreError;
use fencehold_contract::operation::{JobRequest, JobResponse};

use self::batch::{JobBatch, JobSlotChange};
use self::claim::WaitingClaims;
use self::enqueue::UniqueJobs;
use self::prune::Pruning;
use self::queues::QueueTable;
use self::schedule::ScheduleTable;
use self::table::JobTable;
use self::used_hold_ids::{NamespaceHold, UsedHoldIds};
use self::wait::JobWaiters;
use super::state::Engine;
use super::waiters::Ticket;
use super::wheel::Wheel;

/// How many tokens are set aside at a time, so that giving one writes nothing of its own.
const TOKENS_AHEAD: u64 = 4_096;

/// The working state of every job of a store.
#[derive(Debug, Default)]
pub(crate) struct JobEngine {
    table: JobTable,
    queues: QueueTable,
    uniques: UniqueJobs,
    /// Scheduled jobs by what they wait for.
    due_store: BTreeSet<(u64, u32)>,
    due_wall: BTreeSet<(u64, u32)>,
    /// Claims by when they may have run out.
    wheel: Wheel,
    /// Claimed jobs by their token, and by their holder.
    by_token: HashMap<Token, u32>,
    by_hold: HashMap<NamespaceHold, Vec<u32>>,
    past: UsedHoldIds,
    turns: WeightedTurns,
    claimers: WaitingClaims,
    waits: JobWaiters,
    /// Who asks whom to yield: the slot of the waiting job, and of the one that is worked on.
    notices: HashMap<u32, u32>,
    schedules: ScheduleTable,
    pruning: Pruning,
    /// How many jobs have come to their end and are still kept.
    finished: u64,
    /// The effects of jobs that are worked on, or were touched in this batch.
    ledgers: HashMap<u32, Vec<Effect>>,
    newest: Token,
    /// Tokens up to here may be given without keeping anything.
    ceiling: Token,
    last_arrival: u64,
    last_id: Option<JobId>,
    /// Wall time less store time, when they were last told.
    wall_ahead_ms: i128,
    batch: JobBatch,
    /// The archive could not be read: nothing more may be answered.
    broken: Option<String>,
    /// They are still to be read from the archive: at this moment, in store time, if nothing needs them before.
    to_load_ms: Option<u64>,
}

impl Engine {
    /// Takes one request about jobs. Its answer comes with the batch, or with a later one if it waits.
    pub(super) fn ask_jobs(
        &mut self,
        now: Timestamp,
        ticket: Ticket,
        space: u32,
        ask: JobRequest,
        archive: &mut dyn Archive,
    ) {
        self.look_at_the_wall_clock(now);
        let result = match ask {
            JobRequest::Claim(request) => return self.claim(now, ticket, space, request),
            JobRequest::WaitFor(request) => return self.wait_for(now, ticket, space, &request, archive),
            JobRequest::BeginOperation(request) => return self.begin(now, ticket, space, request, archive),
            JobRequest::Get(id) => return self.look(ticket, ArchiveRead::Job { space, id }),
            JobRequest::List(request) => return self.look(ticket, ArchiveRead::List { space, request }),
            JobRequest::Effects(request) => {
                return self.look(ticket, ArchiveRead::Findings { space, request });
            }
            JobRequest::Enqueue(jobs) => Ok(self.enqueue(now, space, jobs, archive)),
            JobRequest::Renew(attempts) => Ok(self.renew_claims(now, space, &attempts, archive)),
            JobRequest::Report(reports) => Ok(self.report(now, space, reports, archive)),
            JobRequest::WriteEffects(entries) => Ok(self.write_ledger(now, space, entries, archive)),
            JobRequest::Change(request) => Ok(self.act(now, space, request, archive)),
            JobRequest::Queues => Ok(JobResponse::Queues(self.queue_views(space))),
            JobRequest::SetQueueMode(order) => self.set_queue(now, space, &order),
            JobRequest::DeleteQueue { queue, by } => self.remove_queue(now, space, &queue, &by),
            JobRequest::Schedules => Ok(JobResponse::Schedules(self.schedule_views(space))),
            JobRequest::SetSchedule(spec) => self.set_schedule(now, space, *spec),
            JobRequest::DeleteSchedule { name, .. } => Ok(self.remove_schedule(space, &name)),
            JobRequest::ResolveEffect(request) => {
                Ok(JobResponse::ResolvedEffect(self.resolve(now, space, &request, archive)))
            }
        };
        self.answer(ticket, result.map(fencehold_contract::operation::StoreResponse::Job));
    }

    /// Decides one command on one job and carries it out.
    fn apply_to_job(
        &mut self,
        now: Timestamp,
        at: u32,
        command: &JobCommand,
        archive: &mut dyn Archive,
    ) -> Result<JobCommandResult, JobRefusal> {
        let Some(slot) = self.jobs.table.at(at) else { return Err(JobRefusal::JobNotFound) };
        let standing = JobStanding { now, newest: self.jobs.newest, term: slot.term(now.store_ms) };
        let JobDecision { record, deadline, mut reply, facts } = decide(&standing, &slot.record, command);
        let (id, queue) = (slot.id, slot.queue);
        match deadline {
            Deadline::Keep | Deadline::Clear => {}
            Deadline::LastsMs(lasts_ms) => {
                if let Some(slot) = self.jobs.table.at_mut(at) {
                    slot.deadline_ms = now.store_ms.saturating_add(lasts_ms);
                    let (arrival, deadline_ms) = (slot.arrival, slot.deadline_ms);
                    self.jobs.batch.touched.entry(arrival).or_insert(JobSlotChange::Term(at));
                    self.jobs.wheel.schedule(at, deadline_ms);
                }
            }
        }
        if let Some(record) = record {
            // An expiry promises nothing to anybody: losing it to a power cut only lengthens the claim.
            self.batch.durable |= !matches!(command, JobCommand::Expire { .. });
            self.become_job(now, at, record, archive);
        }
        if !facts.is_empty() {
            let space = self.jobs.queues.at(queue).space;
            self.note_job(now, space, id, facts);
        }
        if let Err(JobRefusal::WrongJob { token, job_id: job }) = &mut reply {
            // By its name only within the namespace: jobs of other namespaces are not shown.
            let space = self.jobs.queues.at(queue).space;
            let holder = self.jobs.by_token.get(token).and_then(|at| self.jobs.table.at(*at));
            *job = holder
                .filter(|slot| self.jobs.queues.at(slot.queue).space == space)
                .map(|slot| slot.id);
        }
        reply
    }

    /// The slot of a job of this namespace: of a live one, or of one that has come to its end, brought back for now.
    fn find_job(&mut self, space: u32, id: JobId, archive: &mut dyn Archive) -> Result<u32, JobRefusal> {
        let at = if let Some(at) = self.jobs.table.find(id) {
            at
        } else {
            let read = archive.finished(id);
            let job = self.archived(read).flatten().ok_or(JobRefusal::JobNotFound)?;
            let at = self.jobs.table.insert(job);
            self.jobs.batch.leaving.push(at);
            at
        };
        let queue = self.jobs.table.at(at).map(|slot| slot.queue).ok_or(JobRefusal::JobNotFound)?;
        if self.jobs.queues.at(queue).space == space { Ok(at) } else { Err(JobRefusal::JobNotFound) }
    }

    /// What was read from the archive. An archive that cannot be read ends this engine's service: nothing is answered then.
    fn archived<T>(&mut self, read: ArchiveResult<T>) -> Option<T> {
        read.map_err(|why| self.jobs.broken = Some(why)).ok()
    }

    /// A job's body, also one that this batch has brought.
    fn body(&mut self, arrival: u64, archive: &mut dyn Archive) -> Option<Arc<JobBody>> {
        if let Some((_, body)) = self.jobs.batch.bodies.get(&arrival) {
            return Some(Arc::clone(body));
        }
        self.archived(archive.body(arrival)).flatten()
    }

    fn raise_newest(&mut self, token: Token) {
        if token <= self.jobs.newest {
            return;
        }
        self.jobs.newest = token;
        if token > self.jobs.ceiling {
            self.jobs.ceiling = token.lifted(TOKENS_AHEAD).unwrap_or(token);
            let kept = JobChange::TokenCeiling { token: self.jobs.ceiling };
            self.jobs.batch.others.push(kept);
        }
    }

    fn note_job(&mut self, now: Timestamp, space: u32, id: JobId, facts: Vec<fencehold_core::EventData>) {
        if let Ok(key) = Key::new(format!("job/{id}")) {
            self.note(now, space, &key, facts);
        }
    }

    /// An answer that is read from the archive once this batch has been kept.
    fn look(&mut self, ticket: Ticket, look: ArchiveRead) {
        self.batch.answers.push(super::state::OutgoingResponse::to_look(ticket, look));
    }

    /// The same, about jobs that this hold was given before.
    fn look_again(&mut self, ticket: Ticket, hash: HoldHash, look: ArchiveRead) {
        let granted = Some(super::state::Granted::Again(hash));
        let answered = super::state::OutgoingResponse {
            granted,
            ..super::state::OutgoingResponse::to_look(ticket, look)
        };
        self.batch.answers.push(answered);
    }

    pub(super) fn namespace(&self, space: u32) -> Namespace {
        self.table.name_of(space).clone()
    }

    /// Why nothing more may be answered.
    pub fn broken(&mut self) -> Option<String> {
        self.jobs.broken.take()
    }

    /// After `store advance`: nothing from before speaks for a job any more.
    pub(super) fn advance_jobs(
        &mut self,
        now: Timestamp,
        lift: u64,
        archive: &mut dyn Archive,
    ) -> Result<(), StoreError> {
        let Some(lifted) = self.jobs.newest.max(self.jobs.ceiling).lifted(lift) else {
            let what = "the tokens of jobs".to_owned();
            return Err(StoreError::LimitReached { message: what, limit: fencehold_core::limits::TOKEN_MAX });
        };
        self.raise_newest(lifted);
        // Also of those that have run out: they may still speak, and must not.
        for at in self.jobs.table.with_attempts() {
            let _ = self.apply_to_job(now, at, &JobCommand::Advance, archive);
        }
        Ok(())
    }
}

impl JobEngine {
    /// How many jobs there are that have not come to their end.
    pub(super) fn live(&self) -> u64 {
        self.table.len()
    }

    /// How many schedules a namespace has.
    pub(super) fn schedules_in(&self, space: u32) -> u64 {
        self.schedules.in_space(space)
    }

    fn is_live(&self, at: u32, now: Timestamp) -> bool {
        self.table
            .at(at)
            .is_some_and(|slot| matches!(slot.term(now.store_ms), HoldState::Live { .. }))
    }

    /// The attempt that holds a job.
    fn holder(&self, at: u32) -> Option<AttemptProof> {
        let slot = self.table.at(at)?;
        Some(AttemptProof { hash: slot.record.claim.as_ref()?.hash, token: slot.record.token })
    }

    fn forget_notice_of(&mut self, victim: u32) {
        self.notices.retain(|_, asked| *asked != victim);
    }
}
