//! Bodies that only HTTP has: what a method of the contract takes as a list or returns as one is an object in JSON.

use fencehold_core::job::{JobId, QueueName, Refusal as JobRefusal, ReportedAttempt, ScheduleName};
use fencehold_core::{Key, Owner, Refusal, Token};

use super::http_types;
use crate::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, EnqueuedJob, LedgerResponse, NewJob, QueueView,
    ScheduleView,
};
use crate::json::{AsResult, AsResults, advance_by};
use crate::{HoldRef, RevokedLease};

http_types! {
    /// A request that says nothing but what it is.
    #[serde(deny_unknown_fields)]
    pub struct Nothing {}

    /// Holds to renew or to give back.
    #[serde(deny_unknown_fields)]
    pub struct HoldBatchRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        #[cfg_attr(feature = "schema", schemars(length(max = fencehold_core::limits::BATCH_MAX)))]
        pub holds: Vec<HoldRef>,
    }

    /// The answers to many releases, in order.
    pub struct ReleaseLeaseBatchResponse {
        /// One for each: the token that it had.
        #[serde(with = "AsResults")]
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::Outcome<Token>>"))]
        pub results: Vec<Result<Token, Refusal>>,
    }

    /// Holds that were ended by force.
    pub struct RevokeLeaseBatchResponse {
        /// Each of them.
        pub revoked: Vec<RevokedLease>,
    }

    /// Which key to look at.
    #[serde(deny_unknown_fields)]
    pub struct GetLeaseRequest {
        /// The key.
        pub key: Key,
    }

    /// After a restore or a lossy failover.
    #[serde(deny_unknown_fields)]
    pub struct AdvanceStoreRequest {
        /// Who does it.
        pub by: Owner,
        /// By how much every counter rises.
        #[serde(default = "advance_by")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        pub increment: u64,
    }

    /// Who opens the store.
    #[serde(deny_unknown_fields)]
    pub struct ReopenStoreRequest {
        /// Who.
        pub by: Owner,
    }

    /// The store was opened.
    pub struct Opened {}

    /// Jobs to enqueue.
    #[serde(deny_unknown_fields)]
    pub struct EnqueueJobBatchRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub jobs: Vec<NewJob>,
    }

    /// The answers to an enqueue, in order.
    pub struct EnqueueJobBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::Outcome<EnqueuedJob>>"))]
        pub results: Vec<Result<EnqueuedJob, JobRefusal>>,
    }

    /// Claims to renew.
    #[serde(deny_unknown_fields)]
    pub struct RenewAttemptBatchRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub attempts: Vec<AttemptRef>,
    }

    /// What attempts have to say.
    #[serde(deny_unknown_fields)]
    pub struct ReportAttemptBatchRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub reports: Vec<AttemptReport>,
    }

    /// The answers to many reports, in order.
    pub struct ReportAttemptBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::Outcome<ReportedAttempt>>"))]
        pub results: Vec<Result<ReportedAttempt, JobRefusal>>,
    }

    /// Entries in the ledgers of jobs.
    #[serde(deny_unknown_fields)]
    pub struct WriteEffectBatchRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub entries: Vec<AttemptLedgerEntry>,
    }

    /// The answers to many entries, in order.
    pub struct WriteEffectBatchResponse {
        /// One for each.
        #[serde(with = "AsResults")]
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::Outcome<LedgerResponse>>"))]
        pub results: Vec<Result<LedgerResponse, JobRefusal>>,
    }

    /// Which job to look at.
    #[serde(deny_unknown_fields)]
    pub struct GetJobRequest {
        /// Its id.
        pub job_id: JobId,
        /// Answer once it has come to its end, or as it stands after this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(max = fencehold_core::limits::WAIT_MS_MAX)))]
        pub wait_ms: Option<u64>,
    }

    /// Every queue.
    pub struct QueueList {
        /// Each of them.
        pub queues: Vec<QueueView>,
    }

    /// Which queue to remove.
    #[serde(deny_unknown_fields)]
    pub struct QueueRequest {
        /// Its name.
        pub queue: QueueName,
        /// Who removes it.
        pub by: Owner,
    }

    /// Which schedule to remove.
    #[serde(deny_unknown_fields)]
    pub struct DeleteScheduleRequest {
        /// Its name.
        pub schedule: ScheduleName,
        /// Who removes it.
        pub by: Owner,
    }

    /// What became of a queue or a schedule.
    pub struct Removed {
        /// False: there was none.
        pub removed: bool,
    }

    /// Every schedule.
    pub struct ScheduleList {
        /// Each of them.
        pub schedules: Vec<ScheduleView>,
    }

    /// What became of a person's word.
    pub struct Resolved {
        /// It counts, or why not.
        #[serde(with = "AsResult")]
        #[cfg_attr(feature = "schema", schemars(with = "crate::json::Outcome<()>"))]
        pub outcome: Result<(), JobRefusal>,
    }

    /// What the server's store supports.
    #[cfg_attr(feature = "schema", schemars(rename = "Capabilities"))]
    #[expect(clippy::struct_excessive_bools, reason = "each is a question of its own, answered yes or no")]
    pub struct ServerCapabilities {
        /// The store behind the server, as in its URL.
        pub store: String,
        /// Waiters are served first come, first served.
        pub supports_fair_waiting: bool,
        /// Waiting costs no polling.
        pub supports_waiting: bool,
        /// Contenders of higher priority can ask a holder to yield.
        pub supports_preemption: bool,
        /// Jobs live here too.
        pub supports_jobs: bool,
        /// What is acknowledged survives the process.
        pub durable: bool,
        /// The shortest ttl.
        pub min_ttl_ms: u64,
    }

    /// Another caller acted on a hold: its holder renews to learn what happened.
    pub struct ChangedHold {
        /// Which key; a job's is `job/ID`. Missing: changes may have been missed, of any hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<fencehold_core::Key>,
    }
}
