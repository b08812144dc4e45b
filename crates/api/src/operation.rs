//! Every operation: where it is asked, for what, by whom, and what comes back. The one list: the server's routes, the
//! remote store's requests and the document are made from it.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{EventPage, EventsRequest, Scope, access, desk, job, lease, wire};

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
#[cfg(not(feature = "document"))]
pub trait Shape: Serialize + DeserializeOwned + Send + 'static {}
#[cfg(not(feature = "document"))]
impl<T: Serialize + DeserializeOwned + Send + 'static> Shape for T {}

/// What a type on the wire can do: travel, and describe itself.
#[cfg(feature = "document")]
pub trait Shape: Serialize + DeserializeOwned + Send + schemars::JsonSchema + 'static {}
#[cfg(feature = "document")]
impl<T: Serialize + DeserializeOwned + Send + schemars::JsonSchema + 'static> Shape for T {}

/// Something that can be asked of the server.
pub trait Operation: 'static {
    /// All but its types.
    const SPEC: Spec;
    /// What is asked.
    type Request: Shape;
    /// What comes back.
    type Answer: Shape;
}

wire! {
    /// A request that says nothing but what it is.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct Nothing {}
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
    use crate::Scope;

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
        (lease::AcquireRequest) -> lease::Acquired, [409];
    /// Renew many leases; one answer for each, in order
    Renew = "renew_leases" Post "/v1/leases/renew" LEASE_WRITE (lease::Holds) -> lease::Renewed, [];
    /// Give many leases back; one answer for each, in order
    Release = "release_leases" Post "/v1/leases/release" LEASE_WRITE (lease::Holds) -> lease::Released, [];
    /// End leases by force
    Revoke = "revoke_leases" Post "/v1/leases/revoke" LEASE_REVOKE
        (lease::RevokeRequest) -> lease::RevokedLeases, [409];
    /// How one key stands
    GetLease = "get_lease" Get "/v1/lease" LEASE_READ (lease::GetRequest) -> lease::LeaseView, [404];
    /// Keys and how they stand, a page at a time, in no particular order
    ListLeases = "list_leases" Get "/v1/leases" LEASE_READ (lease::ListRequest) -> lease::LeasePage, [];
    /// What happened after a cursor, waiting for up to `wait_ms` for something to happen
    Events = "read_events" Get "/v1/events" LEASE_READ (EventsRequest) -> EventPage, [410];

    /// What the server's store can do
    Capabilities = "store_capabilities" Get "/v1/store" ANY (Nothing) -> lease::Capabilities, [];
    /// Who serves, and how much there is
    Status = "store_status" Get "/v1/store/status" ANY (Nothing) -> lease::StoreStatus, [];
    /// After a restore: end every lease and lift every counter
    Advance = "advance_store" Post "/v1/store/advance" ADMIN (lease::AdvanceRequest) -> lease::Advanced, [];

    /// The limits of a namespace: look at them, or set them
    Limits = "store_limits" Post "/v1/store/limits" ADMIN (lease::LimitsRequest) -> lease::LimitsView, [];
    /// Open a store that an advance has closed, before its time: holders from before may still believe in their leases
    OpenNow = "open_store_now" Post "/v1/store/open-now" ADMIN
        (lease::OpenNowRequest) -> lease::Opened, [];

    /// Put jobs into their queues; one answer for each, in order
    Enqueue = "enqueue_jobs" Post "/v1/jobs/enqueue" JOB_ENQUEUE
        (job::EnqueueRequest) -> job::EnqueueAnswer, [];
    /// Take up to so many jobs, waiting for the first one for up to `wait_ms`
    Claim = "claim_jobs" Post "/v1/jobs/claim" JOB_WORK (job::ClaimRequest) -> job::Claimed, [409];
    /// Renew many claims; one answer for each, in order
    RenewClaims = "renew_claims" Post "/v1/jobs/renew" JOB_WORK (job::Attempts) -> job::RenewedJobs, [];
    /// What attempts have to say: completed, failed, snoozed, handed back, a checkpoint, progress
    ReportJobs = "report_jobs" Post "/v1/jobs/report" JOB_WORK (job::ReportRequest) -> job::ReportAnswer, [];
    /// Announce and record effects; one answer for each, in order. An undo job needs `job:enqueue` too
    WriteLedger = "write_ledger" Post "/v1/jobs/ledger" JOB_WORK (job::LedgerRequest) -> job::LedgerAnswers, [];
    /// Cancel, retry or delete jobs: some by name, or a page of all that match
    Act = "act_on_jobs" Post "/v1/jobs/act" JOB_ADMIN (desk::ActRequest) -> desk::Acted, [];
    /// Everything about one job; with `wait_ms` once it has come to its end
    GetJob = "get_job" Get "/v1/jobs/{job}" ANY_JOB (job::JobRequest) -> job::JobDetail, [404];
    /// Jobs, a page at a time, in the order of their arrival
    ListJobs = "list_jobs" Get "/v1/jobs" ANY_JOB (job::JobsRequest) -> job::JobPage, [];

    /// Every queue: what it does, and how many jobs it has
    ListQueues = "list_queues" Get "/v1/queues" ANY_JOB (Nothing) -> desk::Queues, [];
    /// Have a queue hand out its jobs, or stop, or take no new ones
    SetQueue = "set_queue" Post "/v1/queues/set" JOB_ADMIN (desk::QueueOrder) -> desk::QueueView, [];

    /// Remove a queue that has no jobs and no schedules
    RemoveQueue = "remove_queue" Post "/v1/queues/remove" JOB_ADMIN
        (desk::RemoveQueueRequest) -> desk::Removed, [409];

    /// Every schedule
    ListSchedules = "list_schedules" Get "/v1/schedules" ANY_JOB (Nothing) -> desk::Schedules, [];
    /// Make a schedule, or change it. It enqueues, so it needs `job:enqueue` too
    SetSchedule = "set_schedule" Post "/v1/schedules/set" JOB_ADMIN (desk::ScheduleSpec) -> desk::ScheduleView, [];
    /// Remove a schedule
    RemoveSchedule = "remove_schedule" Post "/v1/schedules/remove" JOB_ADMIN
        (desk::RemoveRequest) -> desk::Removed, [];

    /// Begin an operation under its idempotency key, or learn what has become of it
    Begin = "begin_operation" Post "/v1/operations/begin" JOB_ENQUEUE (desk::BeginRequest) -> desk::Began, [409];
    /// Effects that people should know of
    ListFindings = "list_findings" Get "/v1/findings" ANY_JOB
        (desk::FindingsRequest) -> desk::FindingPage, [];
    /// Say what became of an effect that nobody knew of
    Resolve = "resolve_finding" Post "/v1/findings/resolve" JOB_ADMIN
        (desk::ResolveRequest) -> desk::Resolved, [];

    /// Make a token of access. One for all namespaces needs `admin` for all of them
    CreateToken = "create_token" Post "/v1/tokens/create" ADMIN
        (access::CreateTokenRequest) -> access::TokenView, [];
    /// Every token of the caller's namespace, or of all
    ListTokens = "list_tokens" Get "/v1/tokens" ADMIN (Nothing) -> access::Tokens, [];
    /// Revoke a token of access
    RevokeToken = "revoke_token" Post "/v1/tokens/revoke" ADMIN
        (access::RevokeTokenRequest) -> access::RevokedToken, [404];
    /// What was done with force, and what was denied, in the caller's namespace, or in all
    ReadAudit = "read_audit" Get "/v1/audit" ADMIN (access::AuditRequest) -> access::AuditPage, [];
}
