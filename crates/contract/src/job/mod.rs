//! The contract of a store of jobs.
//!
//! Nouns: a job stands in a queue; a *claim* is a lease on a job, made by one attempt, which speaks for itself with its
//! hold id and its token. What attempts say comes in batches with one answer for each item: a bad item costs the good
//! ones nothing.
//!
//! Sending the same request again is always safe: the same id makes one job, the same hold id gets the jobs that it has,
//! the same word about an attempt gets the same answer while that attempt is the job's last one. Once another has begun, a
//! repeated failure, snooze or release is `Stale`, which says how the attempt ended. Another word is refused.

mod desk;
mod view;
mod work;

use async_trait::async_trait;
use fencehold_core::Owner;
use fencehold_core::job::{JobId, QueueName, Refusal, ReportedAttempt, ScheduleName};

use crate::{CallContext, StoreError};

pub use desk::{
    BeginOperationRequest, BegunOperation, ChangeJobBatchResponse, ChangeJobResult, ChangeJobsRequest,
    ChangedJob, Contents, EffectPage, EffectResolution, EffectView, FindingKind, JobAction, JobSelector,
    ListEffectsRequest, OperationStatus, QueueMode, QueueView, ResolveEffectRequest, ScheduleSpec,
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

/// A place where jobs live.
///
/// Dropping the future of a waiting call leaves the line; jobs that were handed over but never picked up go back.
#[async_trait]
pub trait JobStore: Send + Sync + std::fmt::Debug {
    /// Puts jobs into their queues. One answer for each, in order.
    async fn enqueue(
        &self,
        call: &CallContext,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<EnqueuedJob, Refusal>>, StoreError>;

    /// Takes up to so many jobs out of any of these queues, waiting for the first one for up to `wait_ms`. None: there
    /// was nothing.
    async fn claim(&self, call: &CallContext, request: ClaimJobsRequest) -> Result<ClaimedJobs, StoreError>;

    /// Renews many claims in one call; one answer for each, in order.
    async fn renew_attempts(
        &self,
        call: &CallContext,
        attempts: Vec<AttemptRef>,
    ) -> Result<RenewAttemptBatchResponse, StoreError>;

    /// What attempts have to say: completed, failed, snoozed, handed back; a checkpoint, progress. One answer for each,
    /// in order.
    async fn report(
        &self,
        call: &CallContext,
        reports: Vec<AttemptReport>,
    ) -> Result<Vec<Result<ReportedAttempt, Refusal>>, StoreError>;

    /// Announces and records effects. One answer for each, in order.
    async fn write_effects(
        &self,
        call: &CallContext,
        entries: Vec<AttemptLedgerEntry>,
    ) -> Result<Vec<Result<LedgerResponse, Refusal>>, StoreError>;

    /// Everything about one job. `None`: there is no such job.
    async fn get_job(&self, call: &CallContext, id: JobId) -> Result<Option<JobDetail>, StoreError>;

    /// Everything about one job once it has come to its end or only a person can help it (it is quarantined or
    /// in doubt), or as it stands when the time is up.
    async fn wait_for_job(
        &self,
        call: &CallContext,
        request: WaitRequest,
    ) -> Result<Option<JobDetail>, StoreError>;

    /// Jobs, a page at a time, in the order of their arrival.
    async fn list_jobs(&self, call: &CallContext, request: ListJobsRequest) -> Result<JobPage, StoreError>;

    /// Cancels, retries or deletes jobs: some by name, or a page of all that match.
    async fn change_jobs(
        &self,
        call: &CallContext,
        request: ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, StoreError>;

    /// Every queue: what it does, and how many jobs it has in which state.
    async fn list_queues(&self, call: &CallContext) -> Result<Vec<QueueView>, StoreError>;

    /// Has a queue hand out its jobs, or stop, or take no new ones.
    async fn set_queue_mode(
        &self,
        call: &CallContext,
        order: SetQueueModeRequest,
    ) -> Result<QueueView, StoreError>;

    /// Removes a queue that has no jobs, finished ones included, and no schedules. False: there was none. One that is empty
    /// and unused vanishes by itself.
    async fn delete_queue(&self, call: &CallContext, queue: QueueName, by: Owner)
    -> Result<bool, StoreError>;

    /// Every schedule.
    async fn list_schedules(&self, call: &CallContext) -> Result<Vec<ScheduleView>, StoreError>;

    /// Makes a schedule, or changes it.
    async fn set_schedule(&self, call: &CallContext, spec: ScheduleSpec) -> Result<ScheduleView, StoreError>;

    /// Removes a schedule. False: there was none.
    async fn delete_schedule(
        &self,
        call: &CallContext,
        name: ScheduleName,
        by: Owner,
    ) -> Result<bool, StoreError>;

    /// Begins an operation under its idempotency key, or says what has become of it.
    async fn begin_operation(
        &self,
        call: &CallContext,
        request: BeginOperationRequest,
    ) -> Result<Result<BegunOperation, Refusal>, StoreError>;

    /// Effects that people should know of: open intents, effects not (yet) undone, effects of superseded tokens.
    async fn list_effects(
        &self,
        call: &CallContext,
        request: ListEffectsRequest,
    ) -> Result<EffectPage, StoreError>;

    /// A person says what became of an effect that nobody knew of, and the job goes on.
    async fn resolve_effect(
        &self,
        call: &CallContext,
        request: ResolveEffectRequest,
    ) -> Result<Result<(), Refusal>, StoreError>;
}

/// A queue with its weight in a claim.
pub type QueueWeight = (QueueName, u32);
