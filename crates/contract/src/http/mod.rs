//! Every operation over HTTP: where it is asked, for what, by whom, and what comes back. The one list: the server's routes,
//! the remote store's requests and the OpenAPI document are made from it.
//!
//! Durations are in milliseconds and named so (`ttl_ms`), times are RFC 3339, tokens are numbers below 2^53, payloads are
//! plain JSON. A request with a field that is not known is refused: it may have been meant as a safeguard.
//!
//! Deliberately absent: HTTP itself (the server and the remote store bring their own), and rules (they are the core's).

pub mod access;
mod body;
#[cfg(feature = "schema")]
mod document;
mod scope;

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::job::{
    BeginOperationRequest, BegunOperation, ChangeJobBatchResponse, ChangeJobsRequest, ClaimJobsRequest,
    ClaimedJobs, EffectPage, JobDetail, JobPage, ListEffectsRequest, ListJobsRequest, QueueView,
    RenewAttemptBatchResponse, ResolveEffectRequest, ScheduleSpec, ScheduleView, SetQueueModeRequest,
};
use crate::operation::{Answer, Ask, JobAnswer, JobAsk};
use crate::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, CallContext, EventPage, LeasePage, LeaseView,
    ListEventsRequest, ListLeasesRequest, QuotaRequest, QuotaView, RenewLeaseBatchResponse,
    RevokeLeasesRequest, StoreStatus,
};

pub use body::{
    AdvanceStoreRequest, ChangedHold, DeleteScheduleRequest, EnqueueJobBatchRequest, EnqueueJobBatchResponse,
    GetJobRequest, GetLeaseRequest, HoldBatchRequest, Nothing, Opened, QueueList, QueueRequest,
    ReleaseLeaseBatchResponse, Removed, RenewAttemptBatchRequest, ReopenStoreRequest,
    ReportAttemptBatchRequest, ReportAttemptBatchResponse, Resolved, RevokeLeaseBatchResponse, ScheduleList,
    ServerCapabilities, WriteEffectBatchRequest, WriteEffectBatchResponse,
};
#[cfg(feature = "schema")]
pub use document::document;
pub use scope::{Role, Scope};

/// The header that names the namespace; `default` if it is missing.
pub const NAMESPACE_HEADER: &str = "fencehold-namespace";
/// The header that says for how many milliseconds the caller bears with a store that cannot be reached.
pub const PATIENCE_HEADER: &str = "fencehold-patience-ms";
/// The header under which the same enqueue makes the same jobs.
pub const IDEMPOTENCY_HEADER: &str = "idempotency-key";
/// The content type of every answer that is an error.
pub const PROBLEM_TYPE: &str = "application/problem+json";
/// Where holders hear that another caller acted on what they hold.
pub const HOLD_CHANGES_PATH: &str = "/v1/holds/stream";
/// The largest body of a request: what one call may carry, as JSON and with room for its names.
pub const BODY_BYTES_MAX: usize = 32 << 20;

/// Types that travel over HTTP alone.
macro_rules! http_types {
    ($($item:item)*) => {
        $(#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        $item)*
    };
}
use http_types;

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
pub struct Spec {
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
}

/// What a type on the wire can do; and, where the document is made, describe itself.
#[cfg(not(feature = "schema"))]
pub trait Shape: Serialize + DeserializeOwned + Send + Sync + 'static {}
#[cfg(not(feature = "schema"))]
impl<T: Serialize + DeserializeOwned + Send + Sync + 'static> Shape for T {}

/// What a type on the wire can do: travel, and describe itself.
#[cfg(feature = "schema")]
pub trait Shape: Serialize + DeserializeOwned + Send + Sync + schemars::JsonSchema + 'static {}
#[cfg(feature = "schema")]
impl<T: Serialize + DeserializeOwned + Send + Sync + schemars::JsonSchema + 'static> Shape for T {}

/// Something that can be asked of the server.
pub trait Operation: 'static {
    /// All but its types.
    const SPEC: Spec;
    /// What is asked.
    type Request: Shape;
    /// What comes back.
    type Answer: Shape;
}

macro_rules! operations {
    ($($(#[doc = $doc:literal])+ $op:ident = $name:literal $method:ident $path:literal $needs:ident
        ($request:ty) -> $answer:ty, [$($status:literal)*];)*) => {
        /// The operations, each a type.
        pub mod op {
            #[allow(clippy::wildcard_imports, reason = "the list reads better without paths")]
            use super::*;
            $(
                $(#[doc = $doc])+
                #[derive(Clone, Copy, Debug)]
                pub struct $op;

                impl Operation for $op {
                    const SPEC: Spec = Spec {
                        name: $name,
                        method: Method::$method,
                        path: $path,
                        scopes: needs::$needs,
                        summary: concat!($($doc),+),
                        statuses: &[$($status),*],
                    };
                    type Request = $request;
                    type Answer = $answer;
                }
            )*
        }

        /// Does something with every operation.
        pub trait Visitor {
            /// With this one.
            fn visit<O: Operation>(&mut self);
        }

        /// Shows every operation to a visitor, in the order of the list.
        pub fn every(visitor: &mut impl Visitor) {
            $(visitor.visit::<op::$op>();)*
        }

        /// What there is to know of every operation but its types.
        pub const ALL: &[Spec] = &[$(<op::$op as Operation>::SPEC),*];
    };
}

/// Which scopes an operation needs: one of these is enough.
mod needs {
    use super::Scope;

    /// What tells nothing of anybody's is for everybody who may do anything at all.
    pub(super) const ANY: &[Scope] = &Scope::ALL;
    /// Whoever has to do with jobs may look at them.
    pub(super) const ANY_JOB: &[Scope] =
        &[Scope::JobEnqueue, Scope::JobWork, Scope::JobAdmin, Scope::JobRead];
    pub(super) const LEASE_READ: &[Scope] = &[Scope::LeaseRead];
    pub(super) const LEASE_WRITE: &[Scope] = &[Scope::LeaseWrite];
    pub(super) const LEASE_REVOKE: &[Scope] = &[Scope::LeaseRevoke];
    pub(super) const JOB_ENQUEUE: &[Scope] = &[Scope::JobEnqueue];
    pub(super) const JOB_WORK: &[Scope] = &[Scope::JobWork];
    pub(super) const JOB_ADMIN: &[Scope] = &[Scope::JobAdmin];
    pub(super) const ADMIN: &[Scope] = &[Scope::Admin];
}

operations! {
    /// Take one of some keys, standing in line for up to `wait_ms`
    Acquire = "acquire_lease" Post "/v1/leases/acquire" LEASE_WRITE
        (AcquireLeaseRequest) -> AcquiredLease, [409];
    /// Renew many leases; one answer for each, in order
    Renew = "renew_leases" Post "/v1/leases/renew" LEASE_WRITE (HoldBatchRequest) -> RenewLeaseBatchResponse, [];
    /// Give many leases back; one answer for each, in order
    Release = "release_leases" Post "/v1/leases/release" LEASE_WRITE (HoldBatchRequest) -> ReleaseLeaseBatchResponse, [];
    /// End leases by force
    Revoke = "revoke_leases" Post "/v1/leases/revoke" LEASE_REVOKE
        (RevokeLeasesRequest) -> RevokeLeaseBatchResponse, [409];
    /// How one key stands
    GetLease = "get_lease" Get "/v1/lease" LEASE_READ (GetLeaseRequest) -> LeaseView, [404];
    /// Keys and how they stand, a page at a time, in no particular order
    ListLeases = "list_leases" Get "/v1/leases" LEASE_READ (ListLeasesRequest) -> LeasePage, [];
    /// What happened after a cursor, waiting for up to `wait_ms` for something to happen
    Events = "read_events" Get "/v1/events" LEASE_READ (ListEventsRequest) -> EventPage, [410];

    /// What the server's store can do
    Capabilities = "store_capabilities" Get "/v1/store" ANY (Nothing) -> ServerCapabilities, [];
    /// Who serves, and how much there is
    Status = "store_status" Get "/v1/store/status" ANY (Nothing) -> StoreStatus, [];
    /// After a restore: end every lease and lift every counter
    Advance = "advance_store" Post "/v1/store/advance" ADMIN (AdvanceStoreRequest) -> AdvancedStore, [];

    /// The limits of a namespace: look at them, or set them
    Limits = "store_limits" Post "/v1/store/limits" ADMIN (QuotaRequest) -> QuotaView, [];
    /// Open a store that an advance has closed, before its time: holders from before may still believe in their leases
    OpenNow = "open_store_now" Post "/v1/store/open-now" ADMIN
        (ReopenStoreRequest) -> Opened, [];

    /// Put jobs into their queues; one answer for each, in order
    Enqueue = "enqueue_jobs" Post "/v1/jobs/enqueue" JOB_ENQUEUE
        (EnqueueJobBatchRequest) -> EnqueueJobBatchResponse, [];
    /// Take up to so many jobs, waiting for the first one for up to `wait_ms`
    Claim = "claim_jobs" Post "/v1/jobs/claim" JOB_WORK (ClaimJobsRequest) -> ClaimedJobs, [409];
    /// Renew many claims; one answer for each, in order
    RenewClaims = "renew_claims" Post "/v1/jobs/renew" JOB_WORK (RenewAttemptBatchRequest) -> RenewAttemptBatchResponse, [];
    /// What attempts have to say: completed, failed, snoozed, handed back, a checkpoint, progress
    ReportJobs = "report_jobs" Post "/v1/jobs/report" JOB_WORK (ReportAttemptBatchRequest) -> ReportAttemptBatchResponse, [];
    /// Announce and record effects; one answer for each, in order. An undo job needs `job:enqueue` too
    WriteLedger = "write_ledger" Post "/v1/jobs/ledger" JOB_WORK (WriteEffectBatchRequest) -> WriteEffectBatchResponse, [];
    /// Cancel, retry or delete jobs: some by name, or a page of all that match
    Act = "act_on_jobs" Post "/v1/jobs/act" JOB_ADMIN (ChangeJobsRequest) -> ChangeJobBatchResponse, [];
    /// Everything about one job; with `wait_ms` once it has come to its end
    GetJob = "get_job" Get "/v1/jobs/{job}" ANY_JOB (GetJobRequest) -> JobDetail, [404];
    /// Jobs, a page at a time, in the order of their arrival
    ListJobs = "list_jobs" Get "/v1/jobs" ANY_JOB (ListJobsRequest) -> JobPage, [];

    /// Every queue: what it does, and how many jobs it has
    ListQueues = "list_queues" Get "/v1/queues" ANY_JOB (Nothing) -> QueueList, [];
    /// Have a queue hand out its jobs, or stop, or take no new ones
    SetQueue = "set_queue" Post "/v1/queues/set" JOB_ADMIN (SetQueueModeRequest) -> QueueView, [];

    /// Remove a queue that has no jobs and no schedules
    RemoveQueue = "remove_queue" Post "/v1/queues/remove" JOB_ADMIN
        (QueueRequest) -> Removed, [409];

    /// Every schedule
    ListSchedules = "list_schedules" Get "/v1/schedules" ANY_JOB (Nothing) -> ScheduleList, [];
    /// Make a schedule, or change it. It enqueues, so it needs `job:enqueue` too
    SetSchedule = "set_schedule" Post "/v1/schedules/set" JOB_ADMIN (Box<ScheduleSpec>) -> Box<ScheduleView>, [];
    /// Remove a schedule
    RemoveSchedule = "remove_schedule" Post "/v1/schedules/remove" JOB_ADMIN
        (DeleteScheduleRequest) -> Removed, [];

    /// Begin an operation under its idempotency key, or learn what has become of it
    Begin = "begin_operation" Post "/v1/operations/begin" JOB_ENQUEUE (BeginOperationRequest) -> BegunOperation, [409];
    /// Effects that people should know of
    ListFindings = "list_findings" Get "/v1/findings" ANY_JOB
        (ListEffectsRequest) -> EffectPage, [];
    /// Say what became of an effect that nobody knew of
    Resolve = "resolve_finding" Post "/v1/findings/resolve" JOB_ADMIN
        (ResolveEffectRequest) -> Resolved, [];

    /// Make a token of access. One for all namespaces needs `admin` for all of them
    CreateToken = "create_token" Post "/v1/tokens/create" ADMIN
        (access::CreateAccessTokenRequest) -> access::AccessTokenView, [];
    /// Every token of the caller's namespace, or of all
    ListTokens = "list_tokens" Get "/v1/tokens" ADMIN (Nothing) -> access::AccessTokenList, [];
    /// Revoke a token of access
    RevokeToken = "revoke_token" Post "/v1/tokens/revoke" ADMIN
        (access::RevokeAccessTokenRequest) -> access::RevokedAccessToken, [404];
    /// What was done with force, and what was denied, in the caller's namespace, or in all
    ReadAudit = "read_audit" Get "/v1/audit" ADMIN (access::AuditRequest) -> access::AuditPage, [];
}

/// Carries one request to a server and its answer back.
pub trait Transport {
    /// Why there is no answer.
    type Error;
    /// Sends one request.
    fn send<O: Operation>(
        &self,
        call: &CallContext,
        request: O::Request,
    ) -> impl Future<Output = Result<O::Answer, Self::Error>> + Send;
}

/// An operation that is a call of the contract.
pub trait StoreOperation: Operation {
    /// The call.
    fn ask(request: Self::Request) -> Ask;
    /// What it is answered with; `None`: with something else.
    fn answer(answer: Answer) -> Option<Self::Answer>;
}

/// Each line: an operation, the call that it is, and how both write the request and the answer.
macro_rules! store_operations {
    ($($op:ident: ($($ask:tt)*) = ($($request:tt)*), ($($answer:tt)*) = ($($response:tt)*);)*) => {
        $(impl StoreOperation for op::$op {
            fn ask($($request)*: Self::Request) -> Ask {
                $($ask)*
            }

            fn answer(answer: Answer) -> Option<Self::Answer> {
                match answer {
                    $($answer)* => Some($($response)*),
                    _ => None,
                }
            }
        })*

        /// Sends a call as the operation that it is. `Err` of the call itself: it is no operation as it stands.
        pub async fn send<T: Transport>(transport: &T, call: &CallContext, ask: Ask) -> Result<Result<Answer, Ask>, T::Error> {
            Ok(Ok(match ask {
                $($($ask)* => {
                    let $($response)* = transport.send::<op::$op>(call, $($request)*).await?;
                    $($answer)*
                })*
                other => return Ok(Err(other)),
            }))
        }
    };
}

store_operations! {
    Acquire: (Ask::Acquire(request)) = (request), (Answer::Acquired(acquired)) = (acquired);
    Renew: (Ask::Renew(holds)) = (HoldBatchRequest { holds }), (Answer::Renewed(renewed)) = (renewed);
    Release: (Ask::Release(holds)) = (HoldBatchRequest { holds }), (Answer::Released(answers)) = (ReleaseLeaseBatchResponse { results: answers });
    ListLeases: (Ask::List(request)) = (request), (Answer::Leases(page)) = (page);
    Events: (Ask::Events(request)) = (request), (Answer::Events(page)) = (page);
    Status: (Ask::Status) = (Nothing {}), (Answer::Status(status)) = (status);
    Advance: (Ask::Advance { by, lift }) = (AdvanceStoreRequest { by, increment: lift }), (Answer::Advanced(advanced)) = (advanced);
    Limits: (Ask::Limits(request)) = (request), (Answer::Limits(view)) = (view);
    OpenNow: (Ask::OpenNow { by }) = (ReopenStoreRequest { by }), (Answer::Opened) = (Opened {});
    Enqueue: (Ask::Job(JobAsk::Enqueue(jobs))) = (EnqueueJobBatchRequest { jobs }),
        (Answer::Job(JobAnswer::Enqueued(answers))) = (EnqueueJobBatchResponse { results: answers });
    Claim: (Ask::Job(JobAsk::Claim(request))) = (request), (Answer::Job(JobAnswer::Claimed(claimed))) = (claimed);
    RenewClaims: (Ask::Job(JobAsk::Renew(attempts))) = (RenewAttemptBatchRequest { attempts }),
        (Answer::Job(JobAnswer::Renewed(renewed))) = (renewed);
    ReportJobs: (Ask::Job(JobAsk::Report(reports))) = (ReportAttemptBatchRequest { reports }),
        (Answer::Job(JobAnswer::Reported(answers))) = (ReportAttemptBatchResponse { results: answers });
    WriteLedger: (Ask::Job(JobAsk::Ledger(entries))) = (WriteEffectBatchRequest { entries }),
        (Answer::Job(JobAnswer::Ledger(answers))) = (WriteEffectBatchResponse { results: answers });
    Act: (Ask::Job(JobAsk::Act(request))) = (request), (Answer::Job(JobAnswer::Acted(acted))) = (acted);
    ListJobs: (Ask::Job(JobAsk::List(request))) = (request), (Answer::Job(JobAnswer::Jobs(page))) = (page);
    ListQueues: (Ask::Job(JobAsk::Queues)) = (Nothing {}), (Answer::Job(JobAnswer::Queues(queues))) = (QueueList { queues });
    SetQueue: (Ask::Job(JobAsk::SetQueue(order))) = (order), (Answer::Job(JobAnswer::Queue(view))) = (view);
    RemoveQueue: (Ask::Job(JobAsk::RemoveQueue { queue, by })) = (QueueRequest { queue, by }),
        (Answer::Job(JobAnswer::Removed(removed))) = (Removed { removed });
    ListSchedules: (Ask::Job(JobAsk::Schedules)) = (Nothing {}),
        (Answer::Job(JobAnswer::Schedules(schedules))) = (ScheduleList { schedules });
    SetSchedule: (Ask::Job(JobAsk::SetSchedule(spec))) = (spec), (Answer::Job(JobAnswer::Schedule(view))) = (view);
    RemoveSchedule: (Ask::Job(JobAsk::RemoveSchedule { name, by })) = (DeleteScheduleRequest { schedule: name, by }),
        (Answer::Job(JobAnswer::Removed(removed))) = (Removed { removed });
    Begin: (Ask::Job(JobAsk::Begin(request))) = (request), (Answer::Job(JobAnswer::Began(began))) = (began);
    ListFindings: (Ask::Job(JobAsk::Findings(request))) = (request),
        (Answer::Job(JobAnswer::Findings(page))) = (page);
    Resolve: (Ask::Job(JobAsk::Resolve(request))) = (request), (Answer::Job(JobAnswer::Resolved(outcome))) = (Resolved { outcome });
}
