//! What operators, schedulers and request handlers say: acting on jobs, queues, schedules, operations, doubts.

use fencehold_core::job::{
    EffectName, JobId, JobKind, JobOptions, JobState, QueueName, Refusal, ScheduleName, UniqueKey,
};
use fencehold_core::ledger::{EffectState, InDoubtPolicy};
use fencehold_core::wire::{AsJson, AsMoment, AsOptionalJson, AsOptionalMoment, null};
use fencehold_core::{HoldId, Owner, Reason, Token};

use super::{ClaimedJob, JobCounts, JobFilter};
use crate::StoreError;
use crate::json::{AsLabels, AsNewId, AsResult, Labels, page, utc};

wire! {
    /// Which jobs to act upon, and how.
    #[serde(deny_unknown_fields)]
    pub struct ChangeJobsRequest {
        /// Which jobs.
        pub selector: JobSelector,
        /// What to do to them.
        pub action: JobAction,
        /// Who.
        pub by: Owner,
        /// Only say what would be done.
        #[serde(default)]
        pub dry_run: bool,
    }

    /// A choice of jobs to act upon.
    #[serde(deny_unknown_fields)]
    pub enum JobSelector {
        /// These.
        Jobs(Vec<JobId>),
        /// All that match, a page at a time: each is looked at and acted upon in one step.
        Matching {
            /// Which.
            #[serde(deserialize_with = "crate::json::from_object")]
            filter: JobFilter,
            /// Where the page before ended.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cursor: Option<u64>,
            /// At most this many in one call.
            #[serde(default = "page")]
            #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
            limit: usize,
        },
    }

    /// What can be done to a job.
    #[serde(deny_unknown_fields)]
    pub enum JobAction {
        /// Call it off.
        Cancel {
            /// Why.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<Reason>,
            /// Do not wait for its holder.
            #[serde(default)]
            force: bool,
        },
        /// Have it start over.
        Retry,
        /// Forget it.
        Delete {
            /// Also while somebody works on it.
            #[serde(default)]
            force: bool,
        },
    }

    /// What was done.
    pub struct ChangeJobBatchResponse {
        /// One for each job that was acted upon, or would be.
        pub results: Vec<ChangedJob>,
        /// Where the next page starts; missing: this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next_cursor: Option<u64>,
    }

    /// What was done to one job.
    pub struct ChangedJob {
        /// Which.
        pub job_id: JobId,
        /// How it stands now (a deleted one: how it stood), or why nothing was done.
        #[serde(with = "AsResult")]
        #[schemars(with = "crate::json::Outcome<JobState>")]
        pub result: Result<JobState, Refusal>,
    }

    /// What a queue does.
    #[derive(Copy, Default)]
    pub enum QueueMode {
        /// It takes jobs and hands them out.
        #[default]
        Open,
        /// It takes jobs and hands none out.
        Paused,
        /// It hands jobs out and takes no new ones.
        Draining,
    }
}

impl QueueMode {
    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            QueueMode::Open => "open",
            QueueMode::Paused => "paused",
            QueueMode::Draining => "draining",
        }
    }
}

wire! {
    /// What a queue is to do.
    #[serde(deny_unknown_fields)]
    pub struct SetQueueModeRequest {
        /// Which.
        pub queue: QueueName,
        /// What.
        pub mode: QueueMode,
        /// Who says so.
        pub by: Owner,
    }

    /// A queue.
    pub struct QueueView {
        /// Its name.
        pub name: QueueName,
        /// What it does.
        pub mode: QueueMode,
        /// How many jobs it has.
        pub job_counts: JobCounts,
        /// How many claims wait for jobs from it.
        pub waiting_claim_count: u64,
    }
}

/// What is in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// How many jobs of it are in each state.
    pub counts: JobCounts,
    /// How many schedules enqueue into it.
    pub schedules: u64,
}

impl Contents {
    /// Whether the queue can be removed.
    pub fn check(mut self, queue: &QueueName) -> Result<(), StoreError> {
        let jobs = JobState::ALL.map(|state| (*self.counts.of(state), state.to_string()));
        let schedules = (self.schedules, "schedules".to_owned());
        let there = jobs.into_iter().chain([schedules]).filter(|(count, _)| *count > 0);
        let there: Vec<String> = there.map(|(count, what)| format!("{count} {what}")).collect();
        if there.is_empty() {
            return Ok(());
        }
        Err(StoreError::QueueNotEmpty { queue: queue.clone(), message: there.join(", ") })
    }
}

wire! {
    /// A schedule: when to enqueue what.
    #[serde(deny_unknown_fields)]
    pub struct ScheduleSpec {
        /// Its name.
        pub name: ScheduleName,
        /// A cron line of five fields.
        #[schemars(length(min = 1))]
        pub cron: String,
        /// The time zone in which it is read; an IANA name.
        #[serde(default = "utc")]
        pub time_zone: String,
        /// Where its jobs stand in line.
        #[serde(default)]
        pub queue: QueueName,
        /// What they are.
        pub kind: JobKind,
        /// What they are about.
        #[serde(default = "null", with = "AsJson")]
        pub payload: Box<str>,
        /// On which terms they are tried.
        #[serde(default)]
        pub options: JobOptions,
        /// Their labels.
        #[serde(default, with = "AsLabels", skip_serializing_if = "Vec::is_empty")]
        pub labels: Labels,
        /// Who made it.
        pub by: Owner,
    }

    /// A schedule and where it stands.
    pub struct ScheduleView {
        /// What it says.
        pub spec: ScheduleSpec,
        /// When it fires next; missing: never again.
        #[serde(rename = "next", default, with = "AsOptionalMoment", skip_serializing_if = "Option::is_none")]
        pub next_run_at_ms: Option<u64>,
        /// For which moment it fired last.
        #[serde(rename = "last", default, with = "AsOptionalMoment", skip_serializing_if = "Option::is_none")]
        pub last_run_at_ms: Option<u64>,
    }

    /// The terms on which an operation begins.
    #[serde(deny_unknown_fields)]
    pub struct BeginOperationRequest {
        /// The id of its job, should it be new. Missing: made by the server.
        #[serde(default = "JobId::nil", with = "AsNewId", skip_serializing_if = "JobId::is_nil")]
        pub job_id: JobId,
        /// Its idempotency key: the same operation has the same.
        pub idempotency_key: UniqueKey,
        /// What it is about: the same operation has the same.
        #[serde(default = "null", with = "AsJson")]
        pub payload: Box<str>,
        /// The hold id of this beginning: 128 random bits, made for it alone. A secret.
        pub hold_id: HoldId,
        /// Who begins.
        pub owner: Owner,
        /// How long the claim or a renewal lasts.
        #[schemars(range(min = fencehold_core::limits::TTL_MS_MIN, max = fencehold_core::limits::TTL_MS_MAX))]
        pub ttl_ms: u64,
        /// For how long the key is remembered.
        #[schemars(range(min = 1, max = fencehold_core::limits::UNIQUE_WINDOW_MS_MAX))]
        pub idempotency_window_ms: u64,
        /// What to do when an earlier holder died.
        #[serde(default)]
        pub in_doubt_policy: InDoubtPolicy,
    }

    /// What was found of an operation.
    pub struct BegunOperation {
        /// What.
        pub operation: OperationStatus,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
        /// Whether an earlier sending of the same request was given the operation.
        #[serde(default)]
        pub resumed: bool,
    }

    /// What has become of an operation.
    pub enum OperationStatus {
        /// It is the caller's to carry out.
        Started(Box<ClaimedJob>),
        /// Somebody carries it out at the moment.
        InProgress {
            /// Its job.
            job_id: JobId,
            /// Who.
            owner: Owner,
            /// Under which token.
            token: Token,
            /// How long that claim lasts unless it is renewed.
            remaining_ms: u64,
        },
        /// It was carried out.
        Completed {
            /// Its job.
            job_id: JobId,
            /// The stored answer.
            #[serde(default, with = "AsOptionalJson", skip_serializing_if = "Option::is_none")]
            result: Option<Box<str>>,
        },
        /// It failed for good, or was called off.
        Failed {
            /// Its job.
            job_id: JobId,
            /// How it ended.
            state: JobState,
            /// What went wrong last.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            error: Option<Box<str>>,
        },
        /// The key was used for something else.
        Conflict {
            /// The job that came first.
            job_id: JobId,
        },
        /// Its holder died, and nobody knows how far it came: a person must look.
        InDoubt {
            /// Its job.
            job_id: JobId,
        },
    }

    /// Which findings to list.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct ListEffectsRequest {
        /// Where the page before ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<u64>,
        /// At most this many jobs.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
    }

    /// One page of findings. It may be empty and still not be the last.
    pub struct EffectPage {
        /// The findings.
        pub effects: Vec<EffectView>,
        /// Where the next page starts; missing: this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next_cursor: Option<u64>,
    }

    /// An effect that people should know of.
    pub struct EffectView {
        /// What about it.
        pub finding: FindingKind,
        /// Its job.
        pub job_id: JobId,
        /// The job's queue.
        pub queue: QueueName,
        /// The job's kind.
        pub kind: JobKind,
        /// How the job stands.
        pub job_state: JobState,
        /// Which effect.
        pub effect: EffectName,
        /// How the effect stands.
        pub effect_state: EffectState,
        /// The attempt that announced or recorded it.
        pub token: Token,
        /// When.
        #[serde(rename = "at", with = "AsMoment")]
        pub written_at_ms: u64,
        /// The job that undoes it, once it was enqueued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub compensation_job_id: Option<JobId>,
    }

    /// What about an effect people should know.
    #[derive(Copy)]
    pub enum FindingKind {
        /// It was announced, and nobody has said what came of it.
        InDoubt,
        /// It is to be undone, and is not yet.
        CompensationPending,
        /// It could not be undone.
        CompensationFailed,
        /// It was undone.
        Compensated,
        /// An earlier attempt than the newest recorded it.
        Superseded,
    }
}

impl FindingKind {
    /// The words for it.
    pub const fn name(self) -> &'static str {
        match self {
            FindingKind::InDoubt => "open intent",
            FindingKind::CompensationPending => "not yet undone",
            FindingKind::CompensationFailed => "undo failed",
            FindingKind::Compensated => "undone",
            FindingKind::Superseded => "of a superseded token",
        }
    }
}

wire! {
    /// What a person says of an effect that nobody knew of.
    #[serde(deny_unknown_fields)]
    pub struct ResolveEffectRequest {
        /// Its job.
        pub job_id: JobId,
        /// Which effect.
        pub effect: EffectName,
        /// It happened, and gave this; missing: it did not happen.
        #[serde(default, with = "AsOptionalJson", skip_serializing_if = "Option::is_none")]
        pub happened: Option<Box<str>>,
        /// Who says so.
        pub by: Owner,
    }
}
