//! The contract of a store of jobs.
//!
//! Nouns: a job stands in a queue; a *claim* is a lease on a job, made by one attempt, which speaks for itself with its
//! hold id and its token. What attempts say comes in batches with one answer for each item: a bad item costs the good
//! ones nothing.
//!
//! Sending the same request again is always safe: the same id makes one job, the same hold id gets the jobs that it has,
//! the same word about an attempt gets the same answer while that attempt is the job's last one. Once another has begun, a
//! repeated failure, snooze or hand-back is `Stale`, which says how the attempt ended. Another word is refused.

mod desk;
mod view;
mod work;

use async_trait::async_trait;
use fencehold_core::Owner;
use fencehold_core::job::{JobId, Queue, Refusal, Reported, ScheduleName};

use crate::{Call, StoreError};

pub use desk::{
    ActOn, ActRequest, Acted, ActedItem, Action, Began, BeginRequest, Begun, Contents, Finding, FindingKind,
    FindingPage, FindingsRequest, QueueMode, QueueOrder, QueueView, ResolveRequest, ScheduleSpec,
    ScheduleView,
};
pub use view::{
    AttemptView, Counts, JobDetail, JobFilter, JobPage, JobView, JobsRequest, RunnerView, WaitRequest,
};
pub use work::{
    AttemptRef, ClaimRequest, Claimed, ClaimedJob, Enqueued, LedgerAct, LedgerAnswer, LedgerEntry, NewJob,
    RenewedJobs, Report, UndoOf, Unique, When, Word,
};

/// A place where jobs live.
///
/// Dropping the future of a waiting call leaves the line; jobs that were handed over but never picked up go back.
#[async_trait]
pub trait JobStore: Send + Sync + std::fmt::Debug {
    /// Puts jobs into their queues. One answer for each, in order.
    async fn enqueue(
        &self,
        call: &Call,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<Enqueued, Refusal>>, StoreError>;

    /// Takes up to so many jobs out of any of these queues, waiting for the first one for up to `wait_ms`. None: there
    /// was nothing.
    async fn claim(&self, call: &Call, request: ClaimRequest) -> Result<Claimed, StoreError>;

    /// Renews many claims in one call; one answer for each, in order.
    async fn renew_claims(&self, call: &Call, attempts: Vec<AttemptRef>) -> Result<RenewedJobs, StoreError>;

    /// What attempts have to say: completed, failed, snoozed, handed back; a checkpoint, progress. One answer for each,
    /// in order.
    async fn report(
        &self,
        call: &Call,
        reports: Vec<Report>,
    ) -> Result<Vec<Result<Reported, Refusal>>, StoreError>;

    /// Announces and records effects. One answer for each, in order.
    async fn ledger(
        &self,
        call: &Call,
        entries: Vec<LedgerEntry>,
    ) -> Result<Vec<Result<LedgerAnswer, Refusal>>, StoreError>;

    /// Everything about one job. `None`: there is no such job.
    async fn job(&self, call: &Call, id: JobId) -> Result<Option<JobDetail>, StoreError>;

    /// Everything about one job once it has come to its end or only a person can help it (it is quarantined or
    /// indeterminate), or as it stands when the time is up.
    async fn wait_for(&self, call: &Call, request: WaitRequest) -> Result<Option<JobDetail>, StoreError>;

    /// Jobs, a page at a time, in the order of their arrival.
    async fn jobs(&self, call: &Call, request: JobsRequest) -> Result<JobPage, StoreError>;

    /// Cancels, retries or deletes jobs: some by name, or a page of all that match.
    async fn act(&self, call: &Call, request: ActRequest) -> Result<Acted, StoreError>;

    /// Every queue: what it does, and how many jobs it has in which state.
    async fn queues(&self, call: &Call) -> Result<Vec<QueueView>, StoreError>;

    /// Has a queue hand out its jobs, or stop, or take no new ones.
    async fn set_queue(&self, call: &Call, order: QueueOrder) -> Result<QueueView, StoreError>;

    /// Removes a queue that has no jobs, finished ones included, and no schedules. False: there was none. One that is empty
    /// and unused vanishes by itself.
    async fn remove_queue(&self, call: &Call, queue: Queue, by: Owner) -> Result<bool, StoreError>;

    /// Every schedule.
    async fn schedules(&self, call: &Call) -> Result<Vec<ScheduleView>, StoreError>;

    /// Makes a schedule, or changes it.
    async fn set_schedule(&self, call: &Call, spec: ScheduleSpec) -> Result<ScheduleView, StoreError>;

    /// Removes a schedule. False: there was none.
    async fn remove_schedule(&self, call: &Call, name: ScheduleName, by: Owner) -> Result<bool, StoreError>;

    /// Begins an operation under its idempotency key, or says what has become of it.
    async fn begin(&self, call: &Call, request: BeginRequest) -> Result<Began, StoreError>;

    /// Effects that people should know of: open intents, effects not (yet) undone, effects of superseded tokens.
    async fn findings(&self, call: &Call, request: FindingsRequest) -> Result<FindingPage, StoreError>;

    /// A person says what became of an effect that nobody knew of, and the job goes on.
    async fn resolve(&self, call: &Call, request: ResolveRequest) -> Result<Result<(), Refusal>, StoreError>;
}

/// A queue with its weight in a claim.
pub type Weighted = (Queue, u32);
