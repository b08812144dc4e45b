//! What operators, schedulers and request handlers say: acting on jobs, queues, schedules, operations, doubts.

use fencehold_core::job::{
    EffectName, JobId, JobKind, JobOptions, JobRefusal, JobState, QueueName, ScheduleName, UniqueKey,
};
use fencehold_core::ledger::{EffectStateKind, InDoubtPolicy};
use fencehold_core::wire::{AsJson, AsMoment, AsOptionalJson, AsOptionalMoment, null};
use fencehold_core::{HoldId, Owner, Reason, Token};

use super::{ClaimedJob, JobCounts, JobFilter};
use crate::StoreError;
use crate::http::http_types;
use crate::json::{AsLabels, AsNewId, AsOptionalCursor, ItemResult, Labels, page, utc};
use crate::problem::Problem;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Which jobs to change, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeJobsRequest {
    /// Which jobs.
    pub selector: JobSelector,
    /// What to do to them.
    pub action: JobAction,
    /// Who.
    pub by: Owner,
    /// Only say what would be done.
    pub dry_run: bool,
    /// Where the page before ended. Of jobs that are named it has no meaning.
    pub cursor: Option<u64>,
    /// At most this many in one call, of those that are not named. Each is looked at and changed in one step.
    pub limit: usize,
}

impl ChangeJobsRequest {
    /// A change of these jobs.
    pub fn new(selector: JobSelector, action: JobAction, by: Owner) -> Self {
        ChangeJobsRequest { selector, action, by, dry_run: false, cursor: None, limit: page() }
    }
}

/// What can be done to a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum JobAction {
    /// Call it off.
    Cancel {
        /// Why.
        reason: Option<Reason>,
        /// Do not wait for its holder.
        force: bool,
    },
    /// Have it start over.
    Retry,
    /// Forget it.
    Delete {
        /// Also while it runs.
        force: bool,
    },
    /// Complete it in place of its holder, who did the work and cannot say so.
    Complete {
        /// Its result, as JSON.
        result: Option<Box<str>>,
        /// Why.
        reason: Reason,
    },
    /// Fail it in place of its holder; it is not tried again.
    Fail {
        /// Why.
        reason: Reason,
    },
}

wire! {
    /// A choice of jobs.
    #[serde(tag = "type")]
    #[serde(deny_unknown_fields)]
    pub enum JobSelector {
        /// These.
        Ids {
            /// Their ids.
            job_ids: Vec<JobId>,
        },
        /// All that match.
        Filter {
            /// At least one of its fields.
            #[serde(flatten)]
            filter: JobFilter,
        },
        /// All of the namespace.
        All {},
    }

    /// What became of the jobs of one call.
    pub struct ChangeJobBatchResponse {
        /// One for each job.
        #[serde(with = "AsChangedJobs")]
        pub results: Vec<ChangeJobResult>,
        /// Where the next page begins; missing: that was all.
        #[serde(with = "AsOptionalCursor")]
        pub next_cursor: Option<u64> = None,
    }

    /// A job that was changed.
    #[derive(Copy)]
    pub struct ChangedJob {
        /// Which job.
        pub job_id: JobId,
        /// How it stands now.
        pub state: JobState,
    }
}

/// What became of one job: how it stands now, or why it was not changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChangeJobResult {
    /// Which job.
    pub job_id: JobId,
    /// How it stands, or why not.
    pub result: Result<JobState, JobRefusal>,
}

impl From<ChangeJobResult> for Result<ChangedJob, Problem> {
    fn from(ChangeJobResult { job_id, result }: ChangeJobResult) -> Self {
        match result {
            Ok(state) => Ok(ChangedJob { job_id, state }),
            Err(refusal) => Err(Problem::of_change(job_id, refusal)),
        }
    }
}

/// The JSON form of what became of jobs: `{"ok": …}` or `{"error": …}` for each, both with its id.
struct AsChangedJobs;

impl AsChangedJobs {
    fn serialize<S: Serializer>(results: &[ChangeJobResult], serializer: S) -> Result<S::Ok, S::Error> {
        let item = |result: &ChangeJobResult| ItemResult::<ChangedJob>::from(Result::from(result.clone()));
        serializer.collect_seq(results.iter().map(item))
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<ChangeJobResult>, D::Error> {
        let read = |item: ItemResult<ChangedJob>| match Result::<ChangedJob, Problem>::from(item) {
            Ok(ChangedJob { job_id, state }) => Ok(ChangeJobResult { job_id, result: Ok(state) }),
            Err(problem) => {
                let job_id = problem.job_id.ok_or_else(|| D::Error::missing_field("job_id"))?;
                Ok(ChangeJobResult { job_id, result: Err(problem.into_change_refusal()) })
            }
        };
        Vec::<ItemResult<ChangedJob>>::deserialize(deserializer)?
            .into_iter()
            .map(read)
            .collect()
    }
}

#[cfg(feature = "schema")]
fencehold_core::schema_as! { AsChangedJobs = Vec<ItemResult<ChangedJob>> }

wire! {
    /// What a queue does.
    #[derive(Copy, Default)]
    #[non_exhaustive]
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

/// What a queue is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetQueueModeRequest {
    /// Which.
    pub queue: QueueName,
    /// What.
    pub mode: QueueMode,
    /// Who says so.
    pub by: Owner,
}

wire! {
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

    /// Every queue.
    #[derive(Default)]
    pub struct QueueList {
        /// Each of them.
        pub queues: Vec<QueueView>,
        /// The newest event that is in the counts of jobs: a replay of the events up to it gives the same counts, but for delayed jobs
        /// that became due and finished jobs that were removed with age, of which there are no events. Left out where events with
        /// lower numbers are still to come from transactions under way.
        pub event_seq: Option<u64> = None,
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
    pub fn check(self, queue: &QueueName) -> Result<(), StoreError> {
        let jobs = JobState::ALL.map(|state| (self.counts.get(state), state.to_string()));
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
}

/// A schedule, and when it fires.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(remote = "Self")]
pub struct ScheduleView {
    /// What it is: its fields stand beside the others.
    #[serde(flatten)]
    pub spec: ScheduleSpec,
    /// When it fires next; `None`: never again.
    #[serde(rename = "next_run_at", with = "AsOptionalMoment", skip_serializing_if = "Option::is_none")]
    pub next_run_at_ms: Option<u64>,
    /// When it fired last.
    #[serde(rename = "last_run_at", with = "AsOptionalMoment", skip_serializing_if = "Option::is_none")]
    pub last_run_at_ms: Option<u64>,
}

// It is only read: JSON of a caller's own making cannot be read out of fields that stand beside others.
http_types! {
    /// The JSON form of a schedule: all in one object. Reading ignores what a newer server adds.
    #[serde(rename = "ScheduleView")]
    struct JsonScheduleView {
        /// Its name.
        name: ScheduleName,
        /// When it fires: five fields, as cron has them.
        cron: String,
        /// In which time zone.
        time_zone: String,
        /// Into which queue.
        queue: QueueName,
        /// What the jobs are.
        kind: JobKind,
        /// What they are about.
        #[serde(default = "null", with = "AsJson")]
        payload: Box<str>,
        /// How they are tried.
        #[serde(default)]
        options: JobOptions,
        /// Their labels.
        #[serde(default, with = "AsLabels", skip_serializing_if = "Vec::is_empty")]
        labels: Labels,
        /// Who set it.
        by: Owner,
        /// When it fires next; missing: never again.
        #[serde(rename = "next_run_at", with = "AsOptionalMoment")]
        next_run_at_ms: Option<u64> = None,
        /// When it fired last.
        #[serde(rename = "last_run_at", with = "AsOptionalMoment")]
        last_run_at_ms: Option<u64> = None,
    }
}

impl ScheduleView {
    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let view = JsonScheduleView::deserialize(deserializer)?;
        let (next_run_at_ms, last_run_at_ms) = (view.next_run_at_ms, view.last_run_at_ms);
        let JsonScheduleView { name, cron, time_zone, queue, kind, payload, options, labels, by, .. } = view;
        let spec = ScheduleSpec { name, cron, time_zone, queue, kind, payload, options, labels, by };
        Ok(ScheduleView { spec, next_run_at_ms, last_run_at_ms })
    }
}

fencehold_core::wire_frame! {
    ScheduleView { spec: ScheduleSpec, next_run_at_ms: Option<u64>, last_run_at_ms: Option<u64> }
}

#[cfg(feature = "schema")]
fencehold_core::schema_as! { ScheduleView = JsonScheduleView }

wire! {
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
    #[serde(tag = "type")]
    pub enum OperationStatus {
        /// It is the caller's to carry out.
        Started {
            /// The job that stands for it, claimed.
            job: Box<ClaimedJob>,
        },
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
            #[serde(with = "AsOptionalJson")]
            result: Option<Box<str>> = None,
        },
        /// It failed for good, or was called off.
        Failed {
            /// Its job.
            job_id: JobId,
            /// How it ended.
            state: JobState,
            /// What went wrong last.
            error: Option<Box<str>> = None,
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
        #[serde(with = "AsOptionalCursor")]
        pub cursor: Option<u64> = None,
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
        #[serde(with = "AsOptionalCursor")]
        pub next_cursor: Option<u64> = None,
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
        pub effect_state: EffectStateKind,
        /// The attempt that announced or recorded it.
        pub token: Token,
        /// When.
        #[serde(rename = "written_at", with = "AsMoment")]
        pub written_at_ms: u64,
        /// The job that undoes it, once it was enqueued.
        pub compensation_job_id: Option<JobId> = None,
    }

    /// What about an effect people should know.
    #[derive(Copy)]
    #[non_exhaustive]
    pub enum FindingKind {
        /// It was announced, and its outcome was not reported.
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
            FindingKind::InDoubt => "in doubt",
            FindingKind::CompensationPending => "compensation pending",
            FindingKind::CompensationFailed => "compensation failed",
            FindingKind::Compensated => "compensated",
            FindingKind::Superseded => "superseded",
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
        /// What became of it.
        pub resolution: EffectResolution,
        /// Who says so.
        pub by: Owner,
    }

    /// What became of an effect of which nobody knew.
    #[serde(tag = "type")]
    #[serde(deny_unknown_fields)]
    pub enum EffectResolution {
        /// It happened.
        Happened {
            /// What it gave.
            #[serde(with = "AsJson")]
            value: Box<str>,
        },
        /// It did not happen: the next attempt begins it anew.
        DidNotHappen {},
    }
}
