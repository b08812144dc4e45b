//! The contract of a store of jobs.
//!
//! Nouns: a job stands in a queue; a *claim* is a lease on a job, made by one attempt, which speaks for itself with its
//! hold id and its token. What attempts say comes in batches with one answer for each item: a bad item costs the good
//! ones nothing.
//!
//! Sending the same request again is always safe: the same id makes one job, the same hold id gets the jobs that it has,
//! the same word about an attempt gets the same answer while that attempt is the job's last one. Once another has begun, a
//! repeated failure, snooze or release is `Stale`, which says how the attempt ended. Another word is refused.

mod admin;
mod view;
mod work;

use fencehold_core::Owner;
use fencehold_core::job::{JobId, JobRefusal, QueueName, ReportedAttempt, ScheduleName};

use serde::{Deserialize, Serialize};

use crate::operation::{calls, plain};
use crate::{CallContext, StoreError};

pub use admin::{
    BeginOperationRequest, BegunOperation, ChangeJobBatchResponse, ChangeJobResult, ChangeJobsRequest,
    ChangedJob, Contents, EffectPage, EffectResolution, EffectView, FindingKind, JobAction, JobSelector,
    ListEffectsRequest, OperationStatus, QueueList, QueueMode, QueueView, ResolveEffectRequest, ScheduleSpec,
    ScheduleView, SetQueueModeRequest,
};
pub use view::{
    AttemptView, JobCounts, JobDetail, JobFilter, JobPage, JobView, ListJobsRequest, RunnerView, WaitRequest,
};
pub use work::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, ClaimJobsRequest, ClaimedJob, ClaimedJobs,
    CompensatedEffect, EnqueuedJob, LedgerEntry, LedgerResponse, NewJob, RenewAttemptBatchResponse, Report,
    Unique, When,
};

calls! {
    /// A place where jobs live.
    ///
    /// Dropping the future of a waiting call leaves the line; jobs that were handed over but never picked up go back.
    trait JobStore {}
    impl {}
    /// A call of the contract about jobs: what is asked for.
    enum JobRequest {}
    /// What a call about jobs is answered with, if it is not an error.
    enum JobResponse {}
    calls {
        /// Puts jobs into their queues. One answer for each, in order.
        enqueue: Enqueue(jobs: Vec<NewJob>) -> Enqueued(Vec<Result<EnqueuedJob, JobRefusal>>) [Creates];
        /// Takes up to so many jobs out of any of these queues, waiting for the first one for up to `wait_ms`. None: there
        /// was nothing.
        claim: Claim(request: ClaimJobsRequest) -> Claimed(ClaimedJobs) [Creates];
        /// Renews many claims in one call; one answer for each, in order.
        renew_attempts: Renew(attempts: Vec<AttemptRef>) -> Renewed(RenewAttemptBatchResponse);
        /// What attempts have to say: completed, failed, snoozed, handed back; a checkpoint, progress. One answer for each,
        /// in order.
        report: Report(reports: Vec<AttemptReport>) -> Reported(Vec<Result<ReportedAttempt, JobRefusal>>);
        /// Announces and records effects. One answer for each, in order.
        write_effects: WriteEffects(entries: Vec<AttemptLedgerEntry>) -> WrittenEffects(Vec<Result<LedgerResponse, JobRefusal>>);
        /// Everything about one job. `None`: there is no such job.
        get_job: Get(id: JobId) -> Job(Option<Box<JobDetail>>) as Option<JobDetail> [Reads];
        /// Everything about one job once it has come to its end or only a person can help it (it is quarantined or
        /// in doubt), or as it stands when the time is up.
        wait_for_job: WaitFor(request: WaitRequest) -> Job as Option<JobDetail> [Reads];
        /// Jobs, a page at a time, in the order of their arrival.
        list_jobs: List(request: ListJobsRequest) -> Jobs(JobPage) [Reads];
        /// Cancels, retries or deletes jobs: some by name, or a page of all that match.
        change_jobs: Change(request: ChangeJobsRequest) -> Changed(ChangeJobBatchResponse);
        /// Every queue: what it does, and how many jobs it has in which state.
        list_queues: Queues -> Queues(QueueList) [Reads];
        /// Has a queue hand out its jobs, or stop, or take no new ones.
        set_queue_mode: SetQueueMode(request: SetQueueModeRequest) -> Queue(QueueView) [Creates];
        /// Removes a queue that has no jobs, finished ones included, and no schedules. False: there was none. One that is empty
        /// and unused vanishes by itself.
        delete_queue: DeleteQueue { queue: QueueName, by: Owner } -> Deleted(bool);
        /// Every schedule.
        list_schedules: Schedules -> Schedules(Vec<ScheduleView>) [Reads];
        /// Makes a schedule, or changes it.
        set_schedule: SetSchedule(spec: Box<ScheduleSpec> as ScheduleSpec) -> Schedule(Box<ScheduleView>) as ScheduleView [Creates];
        /// Removes a schedule. False: there was none.
        delete_schedule: DeleteSchedule { name: ScheduleName, by: Owner } -> Deleted as bool;
        /// Begins an operation under its idempotency key, or says what has become of it.
        begin_operation: BeginOperation(request: BeginOperationRequest) -> BegunOperation(Result<BegunOperation, JobRefusal>) [Creates];
        /// Effects that people should know of: open intents, effects not (yet) undone, effects of superseded tokens.
        list_effects: Effects(request: ListEffectsRequest) -> Effects(EffectPage) [Reads];
        /// Resolves an effect in doubt as a person decided, and the job goes on.
        resolve_effect: ResolveEffect(request: ResolveEffectRequest) -> ResolvedEffect(Result<(), JobRefusal>) [Once];
    }
}

/// A queue with its weight in a claim.
pub type QueueWeight = (QueueName, u32);
