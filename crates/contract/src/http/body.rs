//! Bodies that only HTTP has: what a method of the contract takes as a list or returns as one is an object in JSON.

use fencehold_core::job::{JobId, Queue, Refusal as JobRefusal, Reported, ScheduleName};
use fencehold_core::{Key, Owner, Refusal, Token};

use super::http_types;
use crate::job::{AttemptRef, Enqueued, LedgerAnswer, LedgerEntry, NewJob, QueueView, Report, ScheduleView};
use crate::json::{AsResult, AsResults, advance_by};
use crate::{HoldRef, RevokedLease};

http_types! {
    /// A request that says nothing but what it is.
    #[serde(deny_unknown_fields)]
    pub struct Nothing {}

    /// Holds to renew or to give back.
    #[serde(deny_unknown_fields)]
    pub struct Holds {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        #[cfg_attr(feature = "schema", schemars(length(max = fencehold_core::limits::BATCH_MAX)))]
        pub holds: Vec<HoldRef>,
    }

    /// The answers to many releases, in order.
    pub struct Released {
        /// One for each: the token that it had.
        #[serde(with = "AsResults")]
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::Outcome<Token>>"))]
        pub answers: Vec<Result<Token, Refusal>>,
    }

    /// Holds that were ended by force.
    pub struct RevokedLeases {
        /// Each of them.
        pub revoked: Vec<RevokedLease>,
    }

    /// Which key to look at.
    #[serde(deny_unknown_fields)]
    pub struct GetRequest {
        /// The key.
        pub key: Key,
    }

    /// After a restore or a lossy failover.
    #[serde(deny_unknown_fields)]
    pub struct AdvanceRequest {
        /// Who does it.
        pub by: Owner,
        /// By how much every counter rises.
        #[serde(default = "advance_by")]
        #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
        pub lift: u64,
    }

    /// Who opens the store.
    #[serde(deny_unknown_fields)]
    pub struct OpenNowRequest {
        /// Who.
        pub by: Owner,
    }

    /// The store was opened.
    pub struct Opened {}

    /// Jobs to enqueue.
    #[serde(deny_unknown_fields)]
    pub struct EnqueueRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub jobs: Vec<NewJob>,
    }

    /// The answers to an enqueue, in order.
    pub struct EnqueueAnswer {
        /// One for each.
        #[serde(with = "AsResults")]
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::Outcome<Enqueued>>"))]
        pub answers: Vec<Result<Enqueued, JobRefusal>>,
    }

    /// Claims to renew.
    #[serde(deny_unknown_fields)]
    pub struct Attempts {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub attempts: Vec<AttemptRef>,
    }

    /// What attempts have to say.
    #[serde(deny_unknown_fields)]
    pub struct ReportRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub reports: Vec<Report>,
    }

    /// The answers to many reports, in order.
    pub struct ReportAnswer {
        /// One for each.
        #[serde(with = "AsResults")]
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::Outcome<Reported>>"))]
        pub answers: Vec<Result<Reported, JobRefusal>>,
    }

    /// Entries in the ledgers of jobs.
    #[serde(deny_unknown_fields)]
    pub struct LedgerRequest {
        /// One answer for each, in order.
        #[serde(deserialize_with = "crate::json::items")]
        pub entries: Vec<LedgerEntry>,
    }

    /// The answers to many entries, in order.
    pub struct LedgerAnswers {
        /// One for each.
        #[serde(with = "AsResults")]
        #[cfg_attr(feature = "schema", schemars(with = "Vec<crate::json::Outcome<LedgerAnswer>>"))]
        pub answers: Vec<Result<LedgerAnswer, JobRefusal>>,
    }

    /// Which job to look at.
    #[serde(deny_unknown_fields)]
    pub struct JobRequest {
        /// Its id.
        pub job: JobId,
        /// Answer once it has come to its end, or as it stands after this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "schema", schemars(range(max = fencehold_core::limits::WAIT_MS_MAX)))]
        pub wait_ms: Option<u64>,
    }

    /// Every queue.
    pub struct Queues {
        /// Each of them.
        pub queues: Vec<QueueView>,
    }

    /// Which queue to remove.
    #[serde(deny_unknown_fields)]
    pub struct RemoveQueueRequest {
        /// Its name.
        pub queue: Queue,
        /// Who removes it.
        pub by: Owner,
    }

    /// Which schedule to remove.
    #[serde(deny_unknown_fields)]
    pub struct RemoveRequest {
        /// Its name.
        pub name: ScheduleName,
        /// Who removes it.
        pub by: Owner,
    }

    /// What became of a queue or a schedule.
    pub struct Removed {
        /// False: there was none.
        pub removed: bool,
    }

    /// Every schedule.
    pub struct Schedules {
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
        pub fair: bool,
        /// Waiting costs no polling.
        pub waits: bool,
        /// Contenders of higher priority can ask a holder to yield.
        pub preempts: bool,
        /// Jobs live here too.
        pub jobs: bool,
        /// What is acknowledged survives the process.
        pub durable: bool,
        /// The shortest ttl.
        pub ttl_ms_min: u64,
    }

    /// Another caller acted on a hold: its holder renews to learn what happened.
    pub struct ChangedHold {
        /// Which key; a job's is `job/ID`. Missing: changes may have been missed, of any hold.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub key: Option<fencehold_core::Key>,
    }
}
