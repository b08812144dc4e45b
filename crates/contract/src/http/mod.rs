//! Every operation over HTTP: where it is asked, for what, by whom, and what comes back. The one list: the server's routes,
//! the remote store's requests and the OpenAPI document are made from it. Streams, probes and metrics are in `server/src/http/mod.rs`.
//!
//! Durations are in milliseconds and named so (`ttl_ms`), times are RFC 3339, tokens are numbers below 2^53, payloads are
//! plain JSON. A request with a field that is not known is refused: it may have been meant as a safeguard.
//!
//! Deliberately absent: HTTP itself (the server and the remote store bring their own), and rules (they are the core's).

pub mod access;
mod batch;
mod body;
mod scope;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, BegunOperation,
    ChangeJobBatchResponse, ChangeJobsRequest, ChangedJob, ClaimJobsRequest, ClaimedJobs, EffectPage,
    EnqueuedJob, JobAction, JobDetail, JobPage, JobSelector, LedgerResponse, ListEffectsRequest,
    ListJobsRequest, NewJob, QueueList, QueueMode, QueueView, RenewAttemptBatchResponse,
    ResolveEffectRequest, ScheduleSpec, ScheduleView, SetQueueModeRequest,
};
use crate::operation::{JobRequest, JobResponse, StoreRequest, StoreResponse};
use crate::problem::{ErrorKind, Problem};
use crate::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, BlockedWrite, ContentionList, EventPage, HoldRef,
    LeasePage, LeaseStats, LeaseStatsRequest, LeaseView, ListContentionRequest, ListEventsRequest,
    ListLeasesRequest, QuotaRequest, QuotaView, RecordedBlockedWrite, ReleasedLease, RenewLeaseBatchResponse,
    RevokedLease, StoreStatus,
};
use fencehold_core::job::ReportedAttempt;

pub use batch::*;
pub use body::*;
pub use scope::{Role, Scope};

/// The header that names the namespace; `default` if it is missing.
pub const NAMESPACE_HEADER: &str = "fencehold-namespace";
/// The header that says for how many milliseconds the server retries while the store is unreachable.
pub const TIMEOUT_HEADER: &str = "fencehold-timeout-ms";
/// The header under which the same enqueue makes the same jobs.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// The content type of every answer that is an error.
pub const PROBLEM_TYPE: &str = "application/problem+json";
/// Where holders hear that another caller acted on what they hold.
pub const HOLD_CHANGES_PATH: &str = "/v1/holds/stream";
/// The largest body of a request: what one call may carry, as JSON and with room for its names.
pub const BODY_BYTES_MAX: usize = 32 << 20;

/// Types that travel as JSON alone. Their fields are written as in [`wire!`](fencehold_core::wire!).
macro_rules! http_types {
    ($(
        $(#[$meta:meta])*
        $vis:vis struct $name:ident {$(
            $(#[doc = $doc:expr])*
            $(#[serde $serde:tt])*
            $(#[schemars $schemars:tt])*
            $field_vis:vis $field:ident: $kind:ty $(= $none:ident)?
        ),* $(,)?}
    )*) => {$(
        #[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $(#[$meta])*
        $vis struct $name {$(
            $(#[doc = $doc])*
            $(#[serde $serde])*
            $(#[serde(default, skip_serializing_if = "Option::is_none")] #[cfg_attr(any(), $none)])?
            $(#[cfg_attr(feature = "schema", schemars $schemars)])*
            $field_vis $field: $kind,
        )*}
    )*};
}
pub(crate) use http_types;

/// The same for requests: a field that is not known is refused.
macro_rules! http_requests {
    ($($(#[$meta:meta])* $vis:vis struct $name:ident $fields:tt)*) => {
        $crate::http::http_types! { $($(#[$meta])* #[serde(deny_unknown_fields)] $vis struct $name $fields)* }
    };
}
use http_requests;

/// How it is asked: what only looks is a `GET` with everything in its query, what changes something is a `POST` with
/// everything in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// It only looks.
    Get,
    /// It changes something.
    Post,
}

/// What there is to know of an operation but its types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OperationSpec {
    /// Its name.
    pub name: &'static str,
    /// How it is asked.
    pub method: Method,
    /// Where. `{name}` is a part of the path that the request has under this name.
    pub path: &'static str,
    /// The scopes of which it needs one; `admin` stands for every other.
    pub scopes: &'static [Scope],
    /// What it does, in a line.
    pub summary: &'static str,
    /// The statuses of its own, besides those that every operation can have.
    pub statuses: &'static [u16],
    /// Whether it may share a request with others: see [`BatchRequest`].
    pub batched: bool,
}

/// What a type on the wire can do; and, where the document is made, describe itself.
#[cfg(not(feature = "schema"))]
pub trait WireType: Serialize + DeserializeOwned + Send + Sync + 'static {}
#[cfg(not(feature = "schema"))]
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> WireType for T {}

/// What a type on the wire can do: travel, and describe itself.
#[cfg(feature = "schema")]
pub trait WireType: Serialize + DeserializeOwned + Send + Sync + schemars::JsonSchema + 'static {}
#[cfg(feature = "schema")]
impl<T: Serialize + DeserializeOwned + Send + Sync + schemars::JsonSchema + 'static> WireType for T {}

/// Something that can be asked of the server.
pub trait HttpOperation: 'static {
    /// All but its types.
    const SPEC: OperationSpec;
    /// What is asked.
    type Request: WireType;
    /// What comes back.
    type Response: WireType;
    /// What a request is about: two of one batch that share a subject are carried out one after the other.
    fn subjects(_request: &Self::Request) -> Vec<Subject> {
        Vec::new()
    }
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $op:ident = $name:literal $method:ident $path:literal $needs:ident
        ($request:ty) -> $answer:ty, [$($status:literal)*] $(, batched by $subjects:ident)?;)*) => {
        /// The operations, each a type.
        pub mod op {
            #[allow(clippy::wildcard_imports, reason = "the list reads better without paths")]
            use super::*;
            $(
                $(#[doc = $doc])+
                #[derive(Clone, Copy, Debug)]
                pub struct $op;

                impl HttpOperation for $op {
                    const SPEC: OperationSpec = OperationSpec {
                        name: $name,
                        method: Method::$method,
                        path: $path,
                        scopes: needs::$needs,
                        summary: concat!($($doc),+).trim_ascii(),
                        statuses: &[$($status),*],
                        batched: !<[&str]>::is_empty(&[$(stringify!($subjects))?]),
                    };
                    type Request = $request;
                    type Response = $answer;
                    $(fn subjects(request: &Self::Request) -> Vec<Subject> {
                        batch::$subjects(request)
                    })?
                }
            )*
        }

        /// Does something with every operation.
        pub trait Visitor {
            /// With this one.
            fn visit<O: HttpOperation>(&mut self);
        }

        /// Shows every operation to a visitor, in the order of the list.
        pub fn every(visitor: &mut impl Visitor) {
            $(visitor.visit::<op::$op>();)*
        }

        /// What there is to know of every operation but its types.
        pub const ALL: &[OperationSpec] = &[$(<op::$op as HttpOperation>::SPEC),*];
    };
}

/// Which scopes an operation needs: one of these is enough.
mod needs {
    use super::Scope;

    /// What tells nothing of anybody's is for everybody who may do anything at all.
    pub(super) const ANY: &[Scope] = &Scope::ALL;
    /// Every scope of jobs allows looking at them.
    pub(super) const ANY_JOB: &[Scope] =
        &[Scope::JobEnqueue, Scope::JobWork, Scope::JobAdmin, Scope::JobRead];
    pub(super) const LEASE_READ: &[Scope] = &[Scope::LeaseRead];
    pub(super) const LEASE_WRITE: &[Scope] = &[Scope::LeaseWrite];
    /// Both have tokens that can be stale.
    pub(super) const LEASE_WRITE_OR_JOB_WORK: &[Scope] = &[Scope::LeaseWrite, Scope::JobWork];
    pub(super) const LEASE_REVOKE: &[Scope] = &[Scope::LeaseRevoke];
    pub(super) const JOB_ENQUEUE: &[Scope] = &[Scope::JobEnqueue];
    pub(super) const JOB_WORK: &[Scope] = &[Scope::JobWork];
    pub(super) const JOB_ADMIN: &[Scope] = &[Scope::JobAdmin];
    pub(super) const ADMIN: &[Scope] = &[Scope::Admin];
}

operations! {
    /// Carry out several operations, each as if it had come alone: one result for each, in order
    PerformBatch = "perform_batch" Post "/v1/batch" ANY (BatchRequest) -> BatchResponse, [];

    /// Acquire a lease on a key, or on any one of several; waits in line for up to `wait_ms`
    AcquireLease = "acquire_lease" Post "/v1/leases/acquire" LEASE_WRITE
        (AcquireLeaseRequest) -> AcquiredLease, [409],
        batched by keys_of_acquire;
    /// Renew a lease
    RenewLease = "renew_lease" Post "/v1/leases/renew" LEASE_WRITE (HoldRef) -> RenewedLease, [409];
    /// Renew many leases: one result for each, in order
    RenewLeaseBatch = "renew_lease_batch" Post "/v1/leases/renew-batch" LEASE_WRITE
        (HoldBatchRequest) -> RenewLeaseBatchResponse, [];
    /// Release a lease
    ReleaseLease = "release_lease" Post "/v1/leases/release" LEASE_WRITE (HoldRef) -> ReleasedLease, [409],
        batched by key_of_hold;
    /// Release many leases: one result for each, in order
    ReleaseLeaseBatch = "release_lease_batch" Post "/v1/leases/release-batch" LEASE_WRITE
        (HoldBatchRequest) -> ReleaseLeaseBatchResponse, [],
        batched by keys_of_holds;
    /// End the lease on one key by force
    RevokeLease = "revoke_lease" Post "/v1/leases/revoke" LEASE_REVOKE
        (RevokeLeaseRequest) -> RevokedLease, [409];
    /// End the leases of an owner, of a task or under a prefix by force
    RevokeLeaseBatch = "revoke_lease_batch" Post "/v1/leases/revoke-batch" LEASE_REVOKE
        (RevokeLeaseBatchRequest) -> RevokeLeaseBatchResponse, [];
    /// Show one key; a key that nothing is kept of is free, with token 0
    GetLease = "get_lease" Get "/v1/leases/get" LEASE_READ (GetLeaseRequest) -> LeaseView, [];
    /// List keys, a page at a time, in no particular order
    ListLeases = "list_leases" Get "/v1/leases" LEASE_READ (ListLeasesRequest) -> LeasePage, [];
    /// Report a stale write that was refused elsewhere: in a transaction of the caller's own, or at a fence
    ReportBlockedWrite = "report_blocked_write" Post "/v1/leases/report-blocked-write" LEASE_WRITE_OR_JOB_WORK
        (BlockedWrite) -> RecordedBlockedWrite, [],
        batched by key_of_write;
    /// Count how the leases of a namespace ended lately
    GetLeaseStats = "get_lease_stats" Get "/v1/leases/stats" LEASE_READ (LeaseStatsRequest) -> LeaseStats, [];
    /// List the keys that callers contended for in the last hour, those refused most often first
    ListContention = "list_contention" Get "/v1/leases/contention" LEASE_READ
        (ListContentionRequest) -> ContentionList, [];
    /// List events after a cursor; waits for up to `wait_ms` for the first one
    ListEvents = "list_events" Get "/v1/events" LEASE_READ (ListEventsRequest) -> EventPage, [410];

    /// Show what the server's store supports
    GetStoreCapabilities = "get_store_capabilities" Get "/v1/store/capabilities" ANY (NoQuery) -> ServerCapabilities, [];
    /// Show who serves the store, and how much it has
    GetStoreStatus = "get_store_status" Get "/v1/store/status" ANY (NoQuery) -> StoreStatus, [];
    /// After a restore: end every lease and raise every counter
    AdvanceStore = "advance_store" Post "/v1/store/advance" ADMIN (AdvanceStoreRequest) -> AdvancedStore, [];
    /// Open a store that an advance has closed, before its time: holders from before may still believe in their leases
    ReopenStore = "reopen_store" Post "/v1/store/reopen" ADMIN (ReopenStoreRequest) -> Empty, [];

    /// Show the quota of a namespace, and what it uses
    GetQuota = "get_quota" Get "/v1/quota" ADMIN (GetQuotaRequest) -> QuotaView, [];
    /// Set the quota of a namespace
    SetQuota = "set_quota" Post "/v1/quota/set" ADMIN (SetQuotaRequest) -> QuotaView, [];

    /// Enqueue a job
    EnqueueJob = "enqueue_job" Post "/v1/jobs/enqueue" JOB_ENQUEUE (NewJob) -> EnqueuedJob, [404 409],
        batched by id_of_job;
    /// Enqueue many jobs: one result for each, in order
    EnqueueJobBatch = "enqueue_job_batch" Post "/v1/jobs/enqueue-batch" JOB_ENQUEUE
        (EnqueueJobBatchRequest) -> EnqueueJobBatchResponse, [],
        batched by ids_of_jobs;
    /// Claim up to `limit` jobs; waits for the first one for up to `wait_ms`
    ClaimJobs = "claim_jobs" Post "/v1/jobs/claim" JOB_WORK (ClaimJobsRequest) -> ClaimedJobs, [],
        batched by none_of_claim;
    /// Renew an attempt
    RenewAttempt = "renew_attempt" Post "/v1/jobs/renew" JOB_WORK (AttemptRef) -> RenewedAttempt, [404 409];
    /// Renew many attempts: one result for each, in order
    RenewAttemptBatch = "renew_attempt_batch" Post "/v1/jobs/renew-batch" JOB_WORK
        (RenewAttemptBatchRequest) -> RenewAttemptBatchResponse, [];
    /// Report on an attempt: complete, fail, snooze, release, checkpoint or progress
    ReportAttempt = "report_attempt" Post "/v1/jobs/report" JOB_WORK
        (AttemptReport) -> ReportedAttempt, [404 409],
        batched by job_of_report;
    /// Report on many attempts: one result for each, in order
    ReportAttemptBatch = "report_attempt_batch" Post "/v1/jobs/report-batch" JOB_WORK
        (ReportAttemptBatchRequest) -> ReportAttemptBatchResponse, [],
        batched by jobs_of_reports;
    /// Cancel a job
    CancelJob = "cancel_job" Post "/v1/jobs/cancel" JOB_ADMIN (CancelJobRequest) -> ChangedJob, [404 409];
    /// Cancel many jobs: those with these ids, or a page of all that match
    CancelJobBatch = "cancel_job_batch" Post "/v1/jobs/cancel-batch" JOB_ADMIN
        (CancelJobBatchRequest) -> ChangeJobBatchResponse, [];
    /// Have a job start over
    RetryJob = "retry_job" Post "/v1/jobs/retry" JOB_ADMIN (RetryJobRequest) -> ChangedJob, [404 409];
    /// Have many jobs start over: those with these ids, or a page of all that match
    RetryJobBatch = "retry_job_batch" Post "/v1/jobs/retry-batch" JOB_ADMIN
        (RetryJobBatchRequest) -> ChangeJobBatchResponse, [];
    /// Delete a job
    DeleteJob = "delete_job" Post "/v1/jobs/delete" JOB_ADMIN (DeleteJobRequest) -> ChangedJob, [404 409];
    /// Delete many jobs: those with these ids, or a page of all that match
    DeleteJobBatch = "delete_job_batch" Post "/v1/jobs/delete-batch" JOB_ADMIN
        (DeleteJobBatchRequest) -> ChangeJobBatchResponse, [];
    /// Complete a job in place of its holder, who did the work and cannot say so
    CompleteJob = "complete_job" Post "/v1/jobs/complete" JOB_ADMIN (CompleteJobRequest) -> ChangedJob, [404 409];
    /// Complete many jobs in place of their holders: those with these ids, or a page of all that match
    CompleteJobBatch = "complete_job_batch" Post "/v1/jobs/complete-batch" JOB_ADMIN
        (CompleteJobBatchRequest) -> ChangeJobBatchResponse, [];
    /// Fail a job in place of its holder; it is not tried again
    FailJob = "fail_job" Post "/v1/jobs/fail" JOB_ADMIN (FailJobRequest) -> ChangedJob, [404 409];
    /// Fail many jobs in place of their holders: those with these ids, or a page of all that match
    FailJobBatch = "fail_job_batch" Post "/v1/jobs/fail-batch" JOB_ADMIN
        (FailJobBatchRequest) -> ChangeJobBatchResponse, [];
    /// Show one job; with `wait_ms` once it has finished
    GetJob = "get_job" Get "/v1/jobs/{job_id}" ANY_JOB (GetJobRequest) -> JobDetail, [404];
    /// List jobs, a page at a time, in the order of their arrival
    ListJobs = "list_jobs" Get "/v1/jobs" ANY_JOB (ListJobsRequest) -> JobPage, [];

    /// List every queue
    ListQueues = "list_queues" Get "/v1/queues" ANY_JOB (NoQuery) -> QueueList, [];
    /// Show one queue; one that has nothing is open and empty
    GetQueue = "get_queue" Get "/v1/queues/get" ANY_JOB (GetQueueRequest) -> QueueView, [];
    /// Pause a queue: it takes jobs and hands none out
    PauseQueue = "pause_queue" Post "/v1/queues/pause" JOB_ADMIN (QueueRequest) -> QueueView, [];
    /// Resume a queue: it takes jobs and hands them out
    ResumeQueue = "resume_queue" Post "/v1/queues/resume" JOB_ADMIN (QueueRequest) -> QueueView, [];
    /// Drain a queue: it hands jobs out and takes no new ones
    DrainQueue = "drain_queue" Post "/v1/queues/drain" JOB_ADMIN (QueueRequest) -> QueueView, [];
    /// Delete a queue that has no jobs and no schedules
    DeleteQueue = "delete_queue" Post "/v1/queues/delete" JOB_ADMIN (QueueRequest) -> Empty, [404 409];

    /// List every schedule
    ListSchedules = "list_schedules" Get "/v1/schedules" ANY_JOB (NoQuery) -> ScheduleList, [];
    /// Show one schedule
    GetSchedule = "get_schedule" Get "/v1/schedules/get" ANY_JOB (GetScheduleRequest) -> ScheduleView, [404];
    /// Make a schedule, or change it. It enqueues, so it needs `job:enqueue` too
    SetSchedule = "set_schedule" Post "/v1/schedules/set" JOB_ADMIN (Box<ScheduleSpec>) -> Box<ScheduleView>, [];
    /// Delete a schedule
    DeleteSchedule = "delete_schedule" Post "/v1/schedules/delete" JOB_ADMIN
        (DeleteScheduleRequest) -> Empty, [404];

    /// List the effects that a person should know of
    ListEffects = "list_effects" Get "/v1/effects" ANY_JOB (ListEffectsRequest) -> EffectPage, [];
    /// Say what became of an effect that is in doubt
    ResolveEffect = "resolve_effect" Post "/v1/effects/resolve" JOB_ADMIN
        (ResolveEffectRequest) -> Empty, [404 409];
    /// Begin, record or withdraw an effect. A compensation needs `job:enqueue` too
    WriteEffect = "write_effect" Post "/v1/effects/write" JOB_WORK
        (AttemptLedgerEntry) -> LedgerResponse, [404 409],
        batched by job_of_entry;
    /// Begin, record and withdraw many effects: one result for each, in order. A compensation needs `job:enqueue` too
    WriteEffectBatch = "write_effect_batch" Post "/v1/effects/write-batch" JOB_WORK
        (WriteEffectBatchRequest) -> WriteEffectBatchResponse, [],
        batched by jobs_of_entries;
    /// Begin an operation under its idempotency key, or learn what became of it
    BeginOperation = "begin_operation" Post "/v1/operations/begin" JOB_ENQUEUE
        (BeginOperationRequest) -> BegunOperation, [409],
        batched by job_of_operation;

    /// Create an access token. One for all namespaces needs `admin` for all of them
    CreateAccessToken = "create_access_token" Post "/v1/access-tokens/create" ADMIN
        (access::CreateAccessTokenRequest) -> access::AccessTokenView, [];
    /// List the access tokens of the caller's namespace, or of all
    ListAccessTokens = "list_access_tokens" Get "/v1/access-tokens" ADMIN (NoQuery) -> access::AccessTokenList, [];
    /// Revoke an access token
    RevokeAccessToken = "revoke_access_token" Post "/v1/access-tokens/revoke" ADMIN
        (access::RevokeAccessTokenRequest) -> access::RevokedAccessToken, [404];
    /// List what was done by force and what was denied, in the caller's namespace, or in all
    ListAuditEntries = "list_audit_entries" Get "/v1/audit" ADMIN (access::AuditRequest) -> access::AuditPage, [];
}

/// Writes the request of an operation that is a call.
pub trait CallWriter {
    /// What is written.
    type Written;
    /// Writes one request.
    fn write<O: StoreOperation>(self, request: O::Request) -> Self::Written;
}

/// An operation that is a call of the contract.
pub trait StoreOperation: HttpOperation {
    /// The call.
    fn ask(request: Self::Request) -> StoreRequest;
    /// What it is answered with; `None`: with something else.
    fn answer(answer: StoreResponse) -> Option<Self::Response>;
    /// The answer of the call.
    fn response(response: Self::Response) -> StoreResponse;
}

/// Does something with every operation that is a call, or a batch of one.
pub trait CallVisitor {
    /// With one that is a call.
    fn visit_call<O: StoreOperation>(&mut self);
    /// With one that is a batch of one.
    fn visit_single<O: SingleOperation>(&mut self);
}

/// Each line: an operation, the call that it is, and how both write the request and the answer.
macro_rules! store_operations {
    (leases {$($op:ident: ($($ask:tt)*) = ($($request:tt)*), ($($answer:tt)*) = ($($response:tt)*);)*}
     jobs {$($job_op:ident: ($($job:tt)*) = ($($job_request:tt)*), ($($job_answer:tt)*) = ($($job_response:tt)*);)*}) => {
        store_operations! { @each
            $($op: (StoreRequest::$($ask)*) = ($($request)*), (StoreResponse::$($answer)*) = ($($response)*);)*
            $($job_op: (StoreRequest::Job(JobRequest::$($job)*)) = ($($job_request)*),
                (StoreResponse::Job(JobResponse::$($job_answer)*)) = ($($job_response)*);)*
        }
    };
    (@each $($op:ident: ($($ask:tt)*) = ($($request:tt)*), ($($answer:tt)*) = ($($response:tt)*);)*) => {
        $(impl StoreOperation for op::$op {
            fn ask($($request)*: Self::Request) -> StoreRequest {
                $($ask)*
            }

            fn answer(answer: StoreResponse) -> Option<Self::Response> {
                match answer {
                    $($answer)* => Some($($response)*),
                    _ => None,
                }
            }

            fn response($($response)*: Self::Response) -> StoreResponse {
                $($answer)*
            }
        })*

        /// Shows every operation that is a call to a visitor.
        pub fn every_call(visitor: &mut impl CallVisitor) {
            $(visitor.visit_call::<op::$op>();)*
        }

        /// Writes a call as the operation that it is. `Err`: it is no operation as it stands.
        #[allow(clippy::result_large_err, reason = "it is given back")]
        pub fn write_call<W: CallWriter>(writer: W, ask: StoreRequest) -> Result<W::Written, StoreRequest> {
            Ok(match ask {
                $($($ask)* => writer.write::<op::$op>($($request)*),)*
                other => return Err(other),
            })
        }
    };
}

store_operations! {
    leases {
        AcquireLease: (Acquire(request)) = (request), (Acquired(acquired)) = (acquired);
        RenewLeaseBatch: (Renew(holds)) = (HoldBatchRequest { holds }), (Renewed(renewed)) = (renewed);
        ReleaseLeaseBatch: (Release(holds))
            = (HoldBatchRequest { holds }), (Released(results)) = (ReleaseLeaseBatchResponse { results });
        ListLeases: (List(request)) = (request), (Leases(page)) = (page);
        ReportBlockedWrite: (ReportBlockedWrite(report)) = (report), (BlockedWriteRecorded(recorded)) = (recorded);
        GetLeaseStats: (Stats(request)) = (request), (Stats(stats)) = (stats);
        ListContention: (Contention(request)) = (request), (Contention(list)) = (list);
        ListEvents: (Events(request)) = (request), (Events(page)) = (page);
        GetStoreStatus: (Status) = (NoQuery {}), (Status(status)) = (status);
        AdvanceStore: (Advance { by, increment }) = (AdvanceStoreRequest { by, increment }), (Advanced(advanced)) = (advanced);
        ReopenStore: (Reopen { by }) = (ReopenStoreRequest { by }), (Reopened(())) = (Empty {});
        GetQuota: (Quota(QuotaRequest { quota: None, all_namespaces, by: None }))
            = (GetQuotaRequest { all_namespaces }), (Quota(view)) = (view);
        SetQuota: (Quota(QuotaRequest { quota: Some(quota), all_namespaces, by: Some(by) }))
            = (SetQuotaRequest { quota, all_namespaces, by }), (Quota(view)) = (view);
    }
    jobs {
        EnqueueJobBatch: (Enqueue(jobs))
            = (EnqueueJobBatchRequest { jobs }), (Enqueued(results)) = (EnqueueJobBatchResponse { results });
        ClaimJobs: (Claim(request)) = (request), (Claimed(claimed)) = (claimed);
        RenewAttemptBatch: (Renew(attempts)) = (RenewAttemptBatchRequest { attempts }), (Renewed(renewed)) = (renewed);
        ReportAttemptBatch: (Report(reports))
            = (ReportAttemptBatchRequest { reports }), (Reported(results)) = (ReportAttemptBatchResponse { results });
        WriteEffectBatch: (WriteEffects(entries))
            = (WriteEffectBatchRequest { entries }), (WrittenEffects(results)) = (WriteEffectBatchResponse { results });
        CancelJobBatch: (Change(ChangeJobsRequest { selector, action: JobAction::Cancel { reason, force }, by, dry_run, cursor, limit }))
            = (CancelJobBatchRequest { selector, by, reason, force, dry_run, cursor, limit }), (Changed(changed)) = (changed);
        RetryJobBatch: (Change(ChangeJobsRequest { selector, action: JobAction::Retry, by, dry_run, cursor, limit }))
            = (RetryJobBatchRequest { selector, by, dry_run, cursor, limit }), (Changed(changed)) = (changed);
        DeleteJobBatch: (Change(ChangeJobsRequest { selector, action: JobAction::Delete { force }, by, dry_run, cursor, limit }))
            = (DeleteJobBatchRequest { selector, by, force, dry_run, cursor, limit }), (Changed(changed)) = (changed);
        CompleteJobBatch: (Change(ChangeJobsRequest { selector, action: JobAction::Complete { result, reason }, by, dry_run, cursor, limit }))
            = (CompleteJobBatchRequest { selector, by, reason, result, dry_run, cursor, limit }), (Changed(changed)) = (changed);
        FailJobBatch: (Change(ChangeJobsRequest { selector, action: JobAction::Fail { reason }, by, dry_run, cursor, limit }))
            = (FailJobBatchRequest { selector, by, reason, dry_run, cursor, limit }), (Changed(changed)) = (changed);
        ListJobs: (List(request)) = (request), (Jobs(page)) = (page);
        ListQueues: (Queues) = (NoQuery {}), (Queues(list)) = (list);
        PauseQueue: (SetQueueMode(SetQueueModeRequest { queue, mode: QueueMode::Paused, by }))
            = (QueueRequest { queue, by }), (Queue(view)) = (view);
        ResumeQueue: (SetQueueMode(SetQueueModeRequest { queue, mode: QueueMode::Open, by }))
            = (QueueRequest { queue, by }), (Queue(view)) = (view);
        DrainQueue: (SetQueueMode(SetQueueModeRequest { queue, mode: QueueMode::Draining, by }))
            = (QueueRequest { queue, by }), (Queue(view)) = (view);
        ListSchedules: (Schedules) = (NoQuery {}), (Schedules(schedules)) = (ScheduleList { schedules });
        SetSchedule: (SetSchedule(spec)) = (spec), (Schedule(view)) = (view);
        ListEffects: (Effects(request)) = (request), (Effects(page)) = (page);
    }
}

/// An operation that is about one thing, and is carried out as a batch of one.
pub trait SingleOperation: HttpOperation {
    /// The batch.
    type Batch: StoreOperation;
    /// The batch with this one in it.
    fn batch(request: Self::Request) -> <Self::Batch as HttpOperation>::Request;
    /// What came of the one.
    #[expect(clippy::result_large_err, reason = "a problem is sent as it is")]
    fn only(answer: <Self::Batch as HttpOperation>::Response) -> Result<Self::Response, Problem>;
    /// A problem says which thing it is about.
    fn about(request: &Self::Request) -> Box<dyn FnOnce(&mut Problem) + Send>;
}

/// Each line: an operation, its batch, how the request goes into it and the result comes out, and which field of a problem names
/// the thing.
macro_rules! single_operations {
    ($($op:ident: $batch:ident, $request:ident => $($into:expr),+; $answer:ident => $only:expr; $field:ident = $about:expr;)*) => {
        $(impl SingleOperation for op::$op {
            type Batch = op::$batch;

            fn batch($request: Self::Request) -> <Self::Batch as HttpOperation>::Request {
                $($into),+
            }

            fn only($answer: <Self::Batch as HttpOperation>::Response) -> Result<Self::Response, Problem> {
                $only
            }

            fn about($request: &Self::Request) -> Box<dyn FnOnce(&mut Problem) + Send> {
                let about = $about;
                Box::new(move |problem| {
                    problem.$field.get_or_insert(about);
                })
            }
        })*

        /// Shows every operation that is a batch of one to a visitor.
        pub fn every_single(visitor: &mut impl CallVisitor) {
            $(visitor.visit_single::<op::$op>();)*
        }
    };
}

/// The result of the one item that a batch had.
#[expect(clippy::result_large_err, reason = "a problem is sent as it is")]
fn only<T, R: Into<Problem>>(results: Vec<Result<T, R>>) -> Result<T, Problem> {
    match results.into_iter().next() {
        Some(result) => result.map_err(Into::into),
        None => Err(Problem::new(ErrorKind::Unusable, "the store answered fewer items than it was asked")),
    }
}

single_operations! {
    RenewLease: RenewLeaseBatch, hold => HoldBatchRequest { holds: vec![hold] };
        renewed => only(renewed.results).map(|renewal| RenewedLease::of(renewal, renewed.waited_ms)); key = hold.key.clone();
    ReleaseLease: ReleaseLeaseBatch, hold => HoldBatchRequest { holds: vec![hold] };
        released => only(released.results); key = hold.key.clone();
    EnqueueJob: EnqueueJobBatch, job => EnqueueJobBatchRequest { jobs: vec![job] };
        enqueued => only(enqueued.results); queue = job.queue.clone();
    RenewAttempt: RenewAttemptBatch, attempt => RenewAttemptBatchRequest { attempts: vec![attempt] };
        renewed => only(renewed.results).map(|renewal| RenewedAttempt::of(renewal, renewed.waited_ms)); job_id = attempt.job_id;
    ReportAttempt: ReportAttemptBatch, report => ReportAttemptBatchRequest { reports: vec![report] };
        reported => only(reported.results); job_id = report.attempt.job_id;
    WriteEffect: WriteEffectBatch, entry => WriteEffectBatchRequest { entries: vec![entry] };
        written => only(written.results); job_id = entry.attempt.job_id;
    CancelJob: CancelJobBatch, request => {
            let CancelJobRequest { job_id, by, reason, force } = request;
            let selector = JobSelector::Ids { job_ids: vec![job_id] };
            CancelJobBatchRequest { selector, by, reason, force, dry_run: false, cursor: None, limit: 1 }
        };
        changed => only(changed.results.into_iter().map(Result::from).collect()); job_id = request.job_id;
    RetryJob: RetryJobBatch, request => {
            let RetryJobRequest { job_id, by } = request;
            let selector = JobSelector::Ids { job_ids: vec![job_id] };
            RetryJobBatchRequest { selector, by, dry_run: false, cursor: None, limit: 1 }
        };
        changed => only(changed.results.into_iter().map(Result::from).collect()); job_id = request.job_id;
    DeleteJob: DeleteJobBatch, request => {
            let DeleteJobRequest { job_id, by, force } = request;
            let selector = JobSelector::Ids { job_ids: vec![job_id] };
            DeleteJobBatchRequest { selector, by, force, dry_run: false, cursor: None, limit: 1 }
        };
        changed => only(changed.results.into_iter().map(Result::from).collect()); job_id = request.job_id;
    CompleteJob: CompleteJobBatch, request => {
            let CompleteJobRequest { job_id, by, reason, result } = request;
            let selector = JobSelector::Ids { job_ids: vec![job_id] };
            CompleteJobBatchRequest { selector, by, reason, result, dry_run: false, cursor: None, limit: 1 }
        };
        changed => only(changed.results.into_iter().map(Result::from).collect()); job_id = request.job_id;
    FailJob: FailJobBatch, request => {
            let FailJobRequest { job_id, by, reason } = request;
            let selector = JobSelector::Ids { job_ids: vec![job_id] };
            FailJobBatchRequest { selector, by, reason, dry_run: false, cursor: None, limit: 1 }
        };
        changed => only(changed.results.into_iter().map(Result::from).collect()); job_id = request.job_id;
}
