//! Jobs as people see them: everything but the proof of a claim.

use fencehold_core::job::{
    AttemptOutcome, CompensationState, JobId, JobKind, JobOptions, JobState, QueueName, UniqueKey,
};
use fencehold_core::lease::YieldRequest;
use fencehold_core::ledger::Effect;
use fencehold_core::wire::{AsJson, AsMoment, AsOptionalJson};
use fencehold_core::{Owner, Token};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::CompensatedEffect;
use crate::http::http_types;
use crate::json::{AsLabels, AsOptionalBase64, AsOptionalCursor, Labels, page};

wire! {
    /// How a job stands.
    pub struct JobView {
        /// Its id.
        pub id: JobId,
        /// Its queue.
        pub queue: QueueName,
        /// What it is.
        pub kind: JobKind,
        /// How it stands.
        pub state: JobState,
        /// Its newest token.
        pub token: Token,
        /// On which terms it is tried.
        pub options: JobOptions,
        /// How many attempts there were, the one under way included.
        pub attempt_count: u32,
        /// Failures so far.
        pub failure_count: u16,
        /// Dead holders so far.
        pub crash_count: u16,
        /// When it was enqueued.
        #[serde(rename = "enqueued_at", with = "AsMoment")]
        pub enqueued_at_ms: u64,
        /// Since when it stands as it does.
        #[serde(rename = "state_changed_at", with = "AsMoment")]
        pub state_changed_at_ms: u64,
        /// In how many milliseconds it is ready, while it is scheduled.
        pub due_in_ms: Option<u64> = None,
        /// Who works on it.
        pub runner: Option<RunnerView> = None,
        /// Its labels.
        #[serde(default, with = "AsLabels", skip_serializing_if = "Vec::is_empty")]
        pub labels: Labels,
        /// What makes it the same as another.
        pub unique_key: Option<UniqueKey> = None,
        /// How far its effects have been undone.
        pub compensation_state: CompensationState,
        /// Whose effect it undoes, where it does.
        pub compensates: Option<CompensatedEffect> = None,
    }

    /// Who works on a job.
    pub struct RunnerView {
        /// Who.
        pub owner: Owner,
        /// The ttl that it chose.
        pub ttl_ms: u64,
        /// How long it has left unless it renews.
        pub remaining_ms: u64,
        /// Since when.
        #[serde(rename = "claimed_at", with = "AsMoment")]
        pub claimed_at_ms: u64,
        /// For how long it has worked.
        pub age_ms: u64,
        /// Who called the job off.
        pub cancel_requested_by: Option<Owner> = None,
        /// Who asks it to yield.
        pub yield_request: Option<YieldRequest> = None,
    }

    /// Everything about a job.
    pub struct JobDetail {
        /// How it stands.
        #[serde(flatten)]
        pub job: JobView,
        /// What it is about.
        #[serde(with = "AsJson")]
        pub payload: Box<str>,
        /// What it gave.
        #[serde(with = "AsOptionalJson")]
        pub result: Option<Box<str>> = None,
        /// How far it has come.
        #[serde(with = "AsOptionalJson")]
        pub progress: Option<Box<str>> = None,
        /// Where it would go on from.
        #[serde(with = "AsOptionalBase64")]
        pub checkpoint: Option<Vec<u8>> = None,
        /// The trace context of the caller that enqueued it.
        pub traceparent: Option<Box<str>> = None,
        /// The attempts that ended, oldest first; the oldest may be forgotten.
        pub attempts: Vec<AttemptView>,
        /// Its effects, in the order in which they were first heard of.
        pub effects: Vec<Effect>,
    }

    /// An attempt that ended, without its secret.
    pub struct AttemptView {
        /// Its token.
        pub token: Token,
        /// Who made it.
        pub owner: Owner,
        /// When it began.
        #[serde(rename = "started_at", with = "AsMoment")]
        pub started_at_ms: u64,
        /// When it ended.
        #[serde(rename = "ended_at", with = "AsMoment")]
        pub ended_at_ms: u64,
        /// How it ended.
        pub outcome: AttemptOutcome,
        /// What went wrong.
        pub error: Option<Box<str>> = None,
    }

    /// Which jobs. What is not named does not matter.
    #[derive(Default)]
    #[serde(deny_unknown_fields, default)]
    pub struct JobFilter {
        /// In this queue.
        pub queue: Option<QueueName> = None,
        /// Of this kind.
        pub kind: Option<JobKind> = None,
        /// In any of these states; none named: in every state.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub states: Vec<JobState>,
        /// With all of these labels.
        #[serde(with = "AsLabels", skip_serializing_if = "Vec::is_empty")]
        pub labels: Labels,
        /// That this owner works on.
        pub owner: Option<Owner> = None,
        /// With this text in the payload.
        pub payload_contains: Option<String> = None,
    }

    /// One page of jobs. It may be short, or even empty, and still not be the last.
    pub struct JobPage {
        /// The jobs.
        pub jobs: Vec<JobView>,
        /// Where the next page starts; missing: this was the last.
        #[serde(with = "AsOptionalCursor")]
        pub next_cursor: Option<u64> = None,
    }
}

/// Which job to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRequest {
    /// Which.
    pub id: JobId,
    /// For how long.
    pub wait_ms: u64,
}

wire! {
    /// How many jobs there are in which state.
    #[derive(Copy, Default)]
    pub struct JobCounts {
        /// Ready.
        pub queued: u64,
        /// Waiting for their time.
        pub scheduled: u64,
        /// Being worked on.
        pub running: u64,
        /// Done, and not yet pruned.
        pub completed: u64,
        /// Failed for good, and not yet pruned.
        pub failed: u64,
        /// Called off, and not yet pruned.
        pub cancelled: u64,
        /// The end of too many holders.
        pub quarantined: u64,
        /// Waiting for a person to look.
        pub in_doubt: u64,
    }
}

impl JobCounts {
    /// The number for a state.
    pub fn get(&self, state: JobState) -> u64 {
        let mut counts = *self;
        *counts.get_mut(state)
    }

    /// The number for a state, to count with.
    #[doc(hidden)]
    pub fn get_mut(&mut self, state: JobState) -> &mut u64 {
        match state {
            JobState::Queued => &mut self.queued,
            JobState::Scheduled => &mut self.scheduled,
            JobState::Running => &mut self.running,
            JobState::Completed => &mut self.completed,
            JobState::Failed => &mut self.failed,
            JobState::Cancelled => &mut self.cancelled,
            JobState::Quarantined => &mut self.quarantined,
            // States that a later version may add are for people to look at.
            _ => &mut self.in_doubt,
        }
    }
}

/// Which jobs to list. Its JSON form is flat, so that it fits into a query: `state=failed&label=team=red`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListJobsRequest {
    /// Which.
    pub filter: JobFilter,
    /// Where the page before ended.
    pub cursor: Option<u64>,
    /// At most this many.
    pub limit: usize,
}

http_types! {
    /// Which jobs to list. What is not named does not matter.
    #[serde(deny_unknown_fields)]
    struct JobsQuery {
        /// In this queue.
        queue: Option<QueueName> = None,
        /// Of this kind.
        kind: Option<JobKind> = None,
        /// In any of these states; none named: in every state.
        #[serde(default)]
        state: Vec<JobState>,
        /// With all of these labels, as NAME=VALUE.
        #[serde(default)]
        #[schemars(inner(regex(pattern = "=")))]
        label: Vec<String>,
        /// That this owner works on.
        owner: Option<Owner> = None,
        /// With this text in the payload.
        payload_contains: Option<String> = None,
        /// Where the page before ended.
        #[serde(with = "AsOptionalCursor")]
        cursor: Option<u64> = None,
        /// At most this many.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        limit: usize,
    }
}

impl ListJobsRequest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let JobFilter { queue, kind, states, labels, owner, payload_contains } = self.filter.clone();
        let label = labels.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let (cursor, limit) = (self.cursor, self.limit);
        JobsQuery { queue, kind, state: states, label, owner, payload_contains, cursor, limit }
            .serialize(serializer)
    }

    fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let JobsQuery { queue, kind, state: states, label, owner, payload_contains, cursor, limit } =
            JobsQuery::deserialize(deserializer)?;
        let split = |text: String| match text.split_once('=') {
            Some((name, value)) => Ok((name.into(), value.into())),
            None => Err(D::Error::custom(format!("label {text:?} is not NAME=VALUE"))),
        };
        let labels = label.into_iter().map(split).collect::<Result<_, _>>()?;
        let filter = JobFilter { queue, kind, states, labels, owner, payload_contains };
        Ok(ListJobsRequest { filter, cursor, limit })
    }
}

fencehold_core::wire_frame! { ListJobsRequest { filter: JobFilter, cursor: Option<u64>, limit: usize } }

#[cfg(feature = "schema")]
fencehold_core::schema_as! { ListJobsRequest = JobsQuery }
