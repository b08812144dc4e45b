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
mod known_ids;
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
mod wait;

use std::collections::BTreeSet;
use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_contract::job::RenewAttemptBatchResponse;
use fencehold_contract::operation::{JobRequest, JobResponse};
use fencehold_core::job::{
    JobCommand, JobCommandResult, JobDecision, JobId, JobRefusal, JobStanding, JobState, WeightedTurns,
    decide,
};
use fencehold_core::lease::{DeadlineChange as Deadline, LeaseOutcome};
use fencehold_core::ledger::Effect;
use fencehold_core::limits::TOKEN_MAX;
use fencehold_core::{EventData, Key, Namespace, Token};
use hashbrown::HashMap;

pub use archive::{Archive, ArchiveResult, JobBody, JobChange, MemoryArchive};
pub use archive::{ArchiveRange, ArchiveRow, StoredJobs, StoredQueue};
pub use archive::{JobNote, JobSummary, StoredJob, StoredSchedule, StoredUnique};
pub use enqueue::{digest, unique_digest};
pub(crate) use read::ArchiveRead;
pub use replay::{Replay, ReplayInput, ReplayJob, ReplayOutput};

use self::batch::{JobBatch, JobSlotChange};
use self::claim::WaitingClaims;
use self::enqueue::UniqueJobs;
use self::known_ids::KnownIds;
use self::prune::Pruning;
use self::queues::QueueTable;
use self::report::LastHash;
use self::schedule::ScheduleTable;
use self::table::{JobSlot, JobTable};
use self::wait::JobWaiters;
use super::recent::Recent;
use super::state::{Engine, ResponseBody};
use super::step::Step;
use super::waiters::Ticket;
use super::wheel::Wheel;

/// The reply to a request about jobs. `None`: it waits for something, or what it says is still to be read.
type JobReply = Result<Option<JobResponse>, StoreError>;
/// What became of one item of a request.
type ItemResult<T> = Result<T, JobRefusal>;
/// A namespace, and what recognises a hold id in it.
type NamespaceHold = (u32, [u8; 16]);

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
    /// Hold ids of claims that have had their jobs. A claim that is sent once more after all of them have ended gets nothing (R13):
    /// its sender was given jobs before, and a new claim has a new hold id. A sender that comes back after it was forgotten is
    /// taken for new, and given tokens of its own: nothing that it says under the old ones is heard. A few megabytes.
    past: Recent<NamespaceHold, (), { 1 << 16 }>,
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
    ids: KnownIds,
    /// Wall time less store time, when they were last told.
    wall_ahead_ms: i128,
    batch: JobBatch,
    /// The archive could not be read: nothing more may be answered.
    broken: Option<String>,
    /// They are still to be read from the archive: at this moment, in store time, if nothing needs them before.
    to_load_ms: Option<u64>,
}

impl Step<'_> {
    /// Takes one request about jobs.
    pub(super) fn take_job_request(&mut self, ticket: Ticket, space: u32, request: JobRequest) -> JobReply {
        self.look_at_the_wall_clock();
        Ok(Some(match request {
            JobRequest::Claim(request) => return self.claim(ticket, space, request),
            JobRequest::WaitFor(request) => return Ok(self.wait_for(ticket, space, request)),
            JobRequest::BeginOperation(request) => return self.begin_operation(ticket, space, request),
            JobRequest::Get(id) => return Ok(self.read_later(ticket, ArchiveRead::Job { space, id })),
            JobRequest::List(request) => {
                return Ok(self.read_later(ticket, ArchiveRead::List { space, request }));
            }
            JobRequest::Effects(request) => {
                return Ok(self.read_later(ticket, ArchiveRead::Findings { space, request }));
            }
            JobRequest::Enqueue(jobs) => {
                JobResponse::Enqueued(jobs.into_iter().map(|job| self.enqueue(space, job)).collect())
            }
            JobRequest::Renew(attempts) => {
                let mut hashes = LastHash::default();
                let renew = |attempt| self.renew_claim(space, attempt, &mut hashes);
                let results = attempts.iter().map(renew).collect();
                JobResponse::Renewed(RenewAttemptBatchResponse { results, waited_ms: 0 })
            }
            JobRequest::Report(reports) => {
                let mut hashes = LastHash::default();
                let report = |report| self.report(space, report, &mut hashes);
                JobResponse::Reported(reports.into_iter().map(report).collect())
            }
            JobRequest::WriteEffects(entries) => JobResponse::WrittenEffects(
                entries.into_iter().map(|entry| self.write_effect(space, entry)).collect(),
            ),
            JobRequest::Change(request) => JobResponse::Changed(self.change_jobs(space, &request)),
            JobRequest::Queues => JobResponse::Queues(self.list_queues(space)),
            JobRequest::SetQueueMode(request) => JobResponse::Queue(self.set_queue(space, request)?),
            JobRequest::DeleteQueue { queue, by } => {
                JobResponse::Deleted(self.remove_queue(space, &queue, by)?)
            }
            JobRequest::Schedules => JobResponse::Schedules(self.schedule_views(space)),
            JobRequest::SetSchedule(spec) => {
                JobResponse::Schedule(Box::new(self.set_schedule(space, *spec)?))
            }
            JobRequest::DeleteSchedule { name, .. } => {
                JobResponse::Deleted(self.remove_schedule(space, name))
            }
            JobRequest::ResolveEffect(request) => JobResponse::ResolvedEffect(self.resolve(space, request)),
        }))
    }

    /// Decides one command on one job and carries it out.
    fn apply_to_job(&mut self, at: u32, command: &JobCommand) -> ItemResult<JobCommandResult> {
        let slot = self.job(at).ok_or(JobRefusal::JobNotFound)?;
        let JobDecision { record, deadline, mut reply, facts } = self.decide_job(slot, command);
        let (id, space) = (slot.id, self.jobs.queues.at(slot.queue).space);
        let now_ms = self.now.store_ms;
        let jobs = &mut self.jobs;
        if let Deadline::LastsMs(lasts_ms) = deadline
            && let Some(slot) = jobs.table.at_mut(at)
        {
            slot.deadline_ms = now_ms.saturating_add(lasts_ms);
            jobs.batch.touched.entry(slot.arrival).or_insert(JobSlotChange::Term(at));
            jobs.wheel.schedule(at, slot.deadline_ms);
        }
        if let Some(record) = record {
            // An expiry promises nothing to anybody: losing it to a power cut only lengthens the claim.
            self.batch.durable |= !matches!(command, JobCommand::Expire { .. });
            self.become_job(at, record);
        }
        if !facts.is_empty() {
            self.note_job(space, id, facts);
        }
        if let Err(JobRefusal::WrongJob { token, job_id }) = &mut reply {
            // By its name only within the namespace: jobs of other namespaces are not shown.
            let holder = self.jobs.by_token.get(token).and_then(|at| self.job(*at));
            let shown = holder.filter(|slot| self.jobs.queues.at(slot.queue).space == space);
            *job_id = shown.map(|slot| slot.id);
        }
        reply
    }

    /// The slot of a job of this namespace: of a live one, or of one that has come to its end, brought back for now.
    fn find_job(&mut self, space: u32, id: JobId) -> ItemResult<u32> {
        let at = if let Some(at) = self.jobs.table.find(id) {
            at
        } else {
            let job = self.archived(|archive| archive.finished(id)).flatten();
            let job = job.ok_or(JobRefusal::JobNotFound)?;
            let at = self.jobs.table.insert(job);
            self.jobs.batch.leaving.push(at);
            at
        };
        let queue = self.job(at).map(|slot| slot.queue).ok_or(JobRefusal::JobNotFound)?;
        if self.jobs.queues.at(queue).space == space { Ok(at) } else { Err(JobRefusal::JobNotFound) }
    }

    /// A job of this namespace, found as [`Step::find_job`] does.
    fn find_slot(&mut self, space: u32, id: JobId) -> Option<&JobSlot> {
        let at = self.find_job(space, id).ok()?;
        self.job(at)
    }

    /// Whether a live claim of a job has this token; the newest token of the job, and how the attempt under this one ended.
    pub(super) fn claim_under(
        &mut self,
        space: u32,
        id: JobId,
        token: Token,
    ) -> (bool, (Token, Option<LeaseOutcome>)) {
        let now_ms = self.now.store_ms;
        let Some(slot) = self.find_slot(space, id) else { return (false, (Token::NONE, None)) };
        let mut ended = slot.record.trail.iter().flat_map(|trail| &trail.attempts);
        let outcome = ended
            .rfind(|attempt| attempt.token == token)
            .map(|attempt| attempt.outcome.how());
        (slot.is_live(now_ms) && slot.record.token == token, (slot.record.token, outcome))
    }

    /// A job's body, also one that this batch has brought.
    fn body(&mut self, arrival: u64) -> Option<Arc<JobBody>> {
        if let Some((_, body)) = self.jobs.batch.bodies.get(&arrival) {
            return Some(Arc::clone(body));
        }
        self.archived(|archive| archive.body(arrival)).flatten()
    }

    /// After `store advance`: nothing from before speaks for a job any more.
    pub(super) fn advance_jobs(&mut self, lift: u64) -> Result<(), StoreError> {
        let Some(lifted) = self.jobs.newest.max(self.jobs.ceiling).advanced(lift) else {
            return Err(StoreError::LimitReached {
                message: "the tokens of jobs".to_owned(),
                limit: TOKEN_MAX,
            });
        };
        self.raise_newest(lifted);
        // Also of those that have run out: they may still speak, and must not.
        for at in self.jobs.table.with_attempts() {
            let _ = self.apply_to_job(at, &JobCommand::Advance);
        }
        Ok(())
    }

    /// What was read from the archive. An archive that cannot be read ends this engine's service: nothing is answered then.
    fn archived<T>(&mut self, read: impl FnOnce(&mut dyn Archive) -> ArchiveResult<T>) -> Option<T> {
        read(self.archive).map_err(|why| self.engine.jobs.broken = Some(why)).ok()
    }
}

impl Engine {
    fn job(&self, at: u32) -> Option<&JobSlot> {
        self.jobs.table.at(at)
    }

    /// How a job stands at this moment.
    fn job_state(&self, at: u32) -> Option<JobState> {
        self.job(at).map(|slot| slot.record.state_at(self.now))
    }

    /// What a command leads to.
    fn decide_job(&self, slot: &JobSlot, command: &JobCommand) -> JobDecision {
        let term = slot.term(self.now.store_ms);
        let standing = JobStanding { now: self.now, newest: self.jobs.newest, term };
        decide(&standing, &slot.record, command)
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

    fn note_job(&mut self, space: u32, id: JobId, facts: Vec<EventData>) {
        self.note(space, &Key::of_job(id), facts);
    }

    /// Records facts about something that is no key, under a name of its own.
    fn note_about(&mut self, space: u32, name: String, facts: Vec<EventData>) {
        if let Ok(key) = Key::new(name) {
            self.note(space, &key, facts);
        }
    }

    /// An answer that is read from the archive once this batch has been kept: there is none yet.
    fn read_later(&mut self, ticket: Ticket, read: ArchiveRead) -> Option<JobResponse> {
        self.respond(ticket, ResponseBody::ToRead(read), None);
        None
    }

    fn namespace(&self, space: u32) -> Namespace {
        self.table.name_of(space).clone()
    }

    /// Why nothing more may be answered.
    pub fn broken(&mut self) -> Option<String> {
        self.jobs.broken.take()
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

    /// What is kept of a job has changed.
    fn touch(&mut self, at: u32) {
        if let Some(slot) = self.table.at(at) {
            self.batch.touched.insert(slot.arrival, JobSlotChange::Put(at));
        }
    }

    fn forget_notice_of(&mut self, victim: u32) {
        self.notices.retain(|_, asked| *asked != victim);
    }
}
