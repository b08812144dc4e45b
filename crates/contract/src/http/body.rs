//! Bodies that only HTTP has: what a method of the contract takes as a list or returns as one is an object in JSON, and
//! what it takes as a choice has a path of its own.

use fencehold_core::job::{AttemptRenewal, JobId, JobRefusal, QueueName, ReportedAttempt, ScheduleName};
use fencehold_core::lease::{LeaseRenewal, YieldRequest};
use fencehold_core::{Key, Owner, Reason, Refusal, Task, Token};

use fencehold_core::wire::AsOptionalJson;

use super::{http_requests, http_types};
use crate::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, EnqueuedJob, JobSelector, LedgerResponse, NewJob,
    ScheduleView,
};
use crate::json::{AsOptionalCursor, AsResults, advance_by, page};
use crate::quota::Quota;
use crate::{Capabilities, HoldRef, ReleasedLease, RevokeTarget, RevokedLease};

http_requests! {
    /// A request that says nothing but what it is.
    pub struct NoQuery {}

    /// Holds to renew or to release.
    pub struct HoldBatchRequest {
        /// One result for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        #[schemars(length(max = fencehold_core::limits::BATCH_MAX))]
        pub holds: Vec<HoldRef>,
    }

    /// A hold to end by force.
    pub struct RevokeLeaseRequest {
        /// The key.
        pub key: Key,
        /// Only if this is its token.
        pub only_token: Option<Token> = None,
        /// Who uses force.
        pub by: Owner,
        /// Why.
        pub reason: Reason,
    }

    /// Holds to end by force.
    pub struct RevokeLeaseBatchRequest {
        /// Which ones.
        pub selector: LeaseSelector,
        /// Who uses force.
        pub by: Owner,
        /// Why.
        pub reason: Reason,
    }

    /// Which key to look at.
    pub struct GetLeaseRequest {
        /// The key.
        pub key: Key,
    }

    /// After a restore or a lossy failover.
    pub struct AdvanceStoreRequest {
        /// Who does it.
        pub by: Owner,
        /// By how much every counter rises.
        #[serde(default = "advance_by")]
        #[schemars(range(min = 1, max = u64::MAX))]
        pub increment: u64,
    }

    /// Who opens the store.
    pub struct ReopenStoreRequest {
        /// Who.
        pub by: Owner,
    }

    /// Whose quota to look at.
    pub struct GetQuotaRequest {
        /// That of every namespace that has none of its own.
        #[serde(default)]
        pub all_namespaces: bool,
    }

    /// The quota of a namespace.
    pub struct SetQuotaRequest {
        /// What to set; what is missing stays.
        #[serde(deserialize_with = "crate::json::from_object")]
        pub quota: Quota,
        /// Set it for every namespace that has none of its own.
        #[serde(default)]
        pub all_namespaces: bool,
        /// Who.
        pub by: Owner,
    }

    /// Jobs to enqueue.
    pub struct EnqueueJobBatchRequest {
        /// One result for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub jobs: Vec<NewJob>,
    }

    /// Attempts to renew.
    pub struct RenewAttemptBatchRequest {
        /// One result for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub attempts: Vec<AttemptRef>,
    }

    /// What attempts report.
    pub struct ReportAttemptBatchRequest {
        /// One result for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub reports: Vec<AttemptReport>,
    }

    /// Entries in the ledgers of jobs.
    pub struct WriteEffectBatchRequest {
        /// One result for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub entries: Vec<AttemptLedgerEntry>,
    }

    /// Which job to look at.
    pub struct GetJobRequest {
        /// Its id.
        pub job_id: JobId,
        /// Answer once it has finished, or as it stands after this time.
        #[schemars(range(max = fencehold_core::limits::WAIT_MS_MAX))]
        pub wait_ms: Option<u64> = None,
    }

    /// A job to cancel.
    pub struct CancelJobRequest {
        /// Which job.
        pub job_id: JobId,
        /// Who.
        pub by: Owner,
        /// Why.
        pub reason: Option<Reason> = None,
        /// Do not wait for its holder.
        #[serde(default)]
        pub force: bool,
    }

    /// Jobs to cancel.
    pub struct CancelJobBatchRequest {
        /// Which jobs.
        pub selector: JobSelector,
        /// Who.
        pub by: Owner,
        /// Why.
        pub reason: Option<Reason> = None,
        /// Do not wait for their holders.
        #[serde(default)]
        pub force: bool,
        /// Only say what would be done.
        #[serde(default)]
        pub dry_run: bool,
        /// Where the page before ended.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// At most this many in one call, of those that are not named.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
    }

    /// A job to start over.
    pub struct RetryJobRequest {
        /// Which job.
        pub job_id: JobId,
        /// Who.
        pub by: Owner,
    }

    /// Jobs to start over.
    pub struct RetryJobBatchRequest {
        /// Which jobs.
        pub selector: JobSelector,
        /// Who.
        pub by: Owner,
        /// Only say what would be done.
        #[serde(default)]
        pub dry_run: bool,
        /// Where the page before ended.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// At most this many in one call, of those that are not named.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
    }

    /// A job to delete.
    pub struct DeleteJobRequest {
        /// Which job.
        pub job_id: JobId,
        /// Who.
        pub by: Owner,
        /// Also while it runs.
        #[serde(default)]
        pub force: bool,
    }

    /// Jobs to delete.
    pub struct DeleteJobBatchRequest {
        /// Which jobs.
        pub selector: JobSelector,
        /// Who.
        pub by: Owner,
        /// Also while they run.
        #[serde(default)]
        pub force: bool,
        /// Only say what would be done.
        #[serde(default)]
        pub dry_run: bool,
        /// Where the page before ended.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// At most this many in one call, of those that are not named.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
    }

    /// A job to complete in place of its holder.
    pub struct CompleteJobRequest {
        /// Which job.
        pub job_id: JobId,
        /// Who.
        pub by: Owner,
        /// Why.
        pub reason: Reason,
        /// Its result, as JSON.
        #[serde(with = "AsOptionalJson")]
        pub result: Option<Box<str>> = None,
    }

    /// Jobs to complete in place of their holders.
    pub struct CompleteJobBatchRequest {
        /// Which jobs.
        pub selector: JobSelector,
        /// Who.
        pub by: Owner,
        /// Why.
        pub reason: Reason,
        /// The result of each, as JSON.
        #[serde(with = "AsOptionalJson")]
        pub result: Option<Box<str>> = None,
        /// Only say what would be done.
        #[serde(default)]
        pub dry_run: bool,
        /// Where the page before ended.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// At most this many in one call, of those that are not named.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
    }

    /// A job to fail in place of its holder.
    pub struct FailJobRequest {
        /// Which job.
        pub job_id: JobId,
        /// Who.
        pub by: Owner,
        /// Why.
        pub reason: Reason,
    }

    /// Jobs to fail in place of their holders.
    pub struct FailJobBatchRequest {
        /// Which jobs.
        pub selector: JobSelector,
        /// Who.
        pub by: Owner,
        /// Why.
        pub reason: Reason,
        /// Only say what would be done.
        #[serde(default)]
        pub dry_run: bool,
        /// Where the page before ended.
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
        /// At most this many in one call, of those that are not named.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
    }

    /// Which queue to look at.
    pub struct GetQueueRequest {
        /// Its name.
        pub queue: QueueName,
    }

    /// Which queue to change.
    pub struct QueueRequest {
        /// Its name.
        pub queue: QueueName,
        /// Who.
        pub by: Owner,
    }

    /// Which schedule to look at.
    pub struct GetScheduleRequest {
        /// Its name.
        pub schedule: ScheduleName,
    }

    /// Which schedule to delete.
    pub struct DeleteScheduleRequest {
        /// Its name.
        pub schedule: ScheduleName,
        /// Who.
        pub by: Owner,
    }
}

http_types! {
    /// It was carried out, and there is nothing more to say.
    pub struct Empty {}

    /// A renewed lease.
    pub struct RenewedLease {
        /// The same token as before.
        pub token: Token,
        /// How long it lasts from the deciding moment.
        pub remaining_ms: u64,
        /// A contender asks the holder to yield.
        pub yield_request: Option<YieldRequest> = None,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
    }

    /// What came of many releases, in order.
    pub struct ReleaseLeaseBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[schemars(with = "Vec<crate::json::ItemResult<ReleasedLease>>")]
        pub results: Vec<Result<ReleasedLease, Refusal>>,
    }

    /// Holds that were ended by force.
    pub struct RevokeLeaseBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[schemars(with = "Vec<crate::json::ItemResult<RevokedLease>>")]
        pub results: Vec<Result<RevokedLease, Refusal>>,
    }

    /// What came of many jobs, in order.
    pub struct EnqueueJobBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[schemars(with = "Vec<crate::json::ItemResult<EnqueuedJob>>")]
        pub results: Vec<Result<EnqueuedJob, JobRefusal>>,
    }

    /// A renewed attempt.
    pub struct RenewedAttempt {
        /// The same token as before.
        pub token: Token,
        /// How long the claim lasts from the deciding moment.
        pub remaining_ms: u64,
        /// The job was called off: stop.
        pub cancel_requested: bool,
        /// A contender asks the holder to yield.
        pub yield_request: Option<YieldRequest> = None,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
    }

    /// What came of many reports, in order.
    pub struct ReportAttemptBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[schemars(with = "Vec<crate::json::ItemResult<ReportedAttempt>>")]
        pub results: Vec<Result<ReportedAttempt, JobRefusal>>,
    }

    /// What came of many entries, in order.
    pub struct WriteEffectBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[schemars(with = "Vec<crate::json::ItemResult<LedgerResponse>>")]
        pub results: Vec<Result<LedgerResponse, JobRefusal>>,
    }

    /// Every schedule.
    pub struct ScheduleList {
        /// Each of them.
        pub schedules: Vec<ScheduleView>,
    }

    /// What the server's store supports.
    #[cfg_attr(feature = "schema", schemars(rename = "Capabilities"))]
    pub struct ServerCapabilities {
        /// The store behind the server, as in its URL.
        pub store: String,
        /// The rest: its fields stand beside the name.
        #[serde(flatten)]
        pub supported: Capabilities,
    }

    /// Another caller acted on a hold: its holder renews to learn what happened.
    pub struct HoldChange {
        /// Which key; a job's is `job/ID`. Missing: changes may have been missed, of any hold.
        pub key: Option<fencehold_core::Key> = None,
    }
}

fencehold_core::wire! {
    /// A choice of holds.
    #[serde(tag = "type")]
    #[serde(deny_unknown_fields)]
    pub enum LeaseSelector {
        /// All of an owner.
        Owner {
            /// Who.
            owner: Owner,
        },
        /// All that serve a task.
        Task {
            /// Which.
            task: Task,
        },
        /// All whose key starts with a text.
        Prefix {
            /// The text.
            prefix: String,
        },
        /// All that serve a task or one below it: `run-42` covers `run-42/a`, and not `run-420`.
        TaskPrefix {
            /// The task.
            task_prefix: Task,
        },
    }
}

impl From<LeaseSelector> for RevokeTarget {
    fn from(selector: LeaseSelector) -> Self {
        match selector {
            LeaseSelector::Owner { owner } => RevokeTarget::Owner(owner),
            LeaseSelector::Task { task } => RevokeTarget::Task(task),
            LeaseSelector::Prefix { prefix } => RevokeTarget::Prefix(prefix),
            LeaseSelector::TaskPrefix { task_prefix } => RevokeTarget::TaskPrefix(task_prefix),
        }
    }
}

impl RenewedLease {
    pub(super) fn of(renewal: LeaseRenewal, waited_ms: u64) -> Self {
        let LeaseRenewal { token, remaining_ms, yield_request } = renewal;
        RenewedLease { token, remaining_ms, yield_request, waited_ms }
    }
}

impl RenewedAttempt {
    pub(super) fn of(renewal: AttemptRenewal, waited_ms: u64) -> Self {
        let AttemptRenewal { token, remaining_ms, cancel_requested, yield_request } = renewal;
        RenewedAttempt { token, remaining_ms, cancel_requested, yield_request, waited_ms }
    }
}
