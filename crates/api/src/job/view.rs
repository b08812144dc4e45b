//! Looking at jobs: one, with its story, or a page of those that match.

use fencehold_core::job::{Ended, JobId, Kind, Queue, State, Undo, UniqueKey};
use fencehold_core::lease::Notice;
use fencehold_core::{Owner, Token};

use super::{Effect, Terms, UndoOf};
use crate::lease::page;
use crate::{Bytes, Json, Labels, Moment, wire};

wire! {
    /// Which job to look at.
    #[serde(deny_unknown_fields)]
    pub struct JobRequest {
        /// Its id.
        pub job: JobId,
        /// Answer once it has come to its end, or as it stands after this time.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[cfg_attr(feature = "document", schemars(range(max = fencehold_core::limits::WAIT_MS_MAX)))]
        pub wait_ms: Option<u64>,
    }

    /// Everything about a job.
    pub struct JobDetail {
        /// How it stands.
        pub job: JobView,
        /// What it is about.
        pub payload: Json,
        /// What it gave.
        #[serde(default, deserialize_with = "Json::present", skip_serializing_if = "Option::is_none")]
        pub result: Option<Json>,
        /// How far it has come.
        #[serde(default, deserialize_with = "Json::present", skip_serializing_if = "Option::is_none")]
        pub progress: Option<Json>,
        /// Where it would go on from.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub checkpoint: Option<Bytes>,
        /// The trace context of whoever enqueued it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub trace: Option<Box<str>>,
        /// The attempts that ended, oldest first; the oldest may be forgotten.
        pub attempts: Vec<AttemptView>,
        /// Its effects, in the order in which they were first heard of.
        pub effects: Vec<Effect>,
    }

    /// How a job stands.
    pub struct JobView {
        /// Its id.
        pub id: JobId,
        /// Its queue.
        pub queue: Queue,
        /// What it is.
        pub kind: Kind,
        /// How it stands.
        pub state: State,
        /// Its newest token.
        pub token: Token,
        /// On which terms it is tried.
        pub terms: Terms,
        /// How many attempts there were, the one under way included.
        pub attempts: u32,
        /// Failures so far.
        pub failures: u16,
        /// Dead holders so far.
        pub crashes: u16,
        /// When it was enqueued.
        pub enqueued: Moment,
        /// Since when it stands as it does.
        pub since: Moment,
        /// In how many milliseconds it is ready, while it is scheduled.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub due_in_ms: Option<u64>,
        /// Who works on it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub runner: Option<RunnerView>,
        /// Its labels.
        #[serde(default, skip_serializing_if = "Labels::is_empty")]
        pub labels: Labels,
        /// What makes it the same as another.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub unique: Option<UniqueKey>,
        /// How far its effects have been undone.
        pub undo: Undo,
        /// Whose effect it undoes, where it does.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub undo_of: Option<UndoOf>,
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
        pub since: Moment,
        /// For how long it has worked.
        pub age_ms: u64,
        /// Who called the job off.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cancel_by: Option<Owner>,
        /// Who asks it to yield.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub notice: Option<Notice>,
    }

    /// An attempt that ended, without its secret.
    pub struct AttemptView {
        /// Its token.
        pub token: Token,
        /// Who made it.
        pub owner: Owner,
        /// When it began.
        pub since: Moment,
        /// When it ended.
        pub ended: Moment,
        /// How it ended.
        pub how: Ended,
        /// What went wrong.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub error: Option<Box<str>>,
    }

    /// Which jobs to list. What is not named does not matter.
    #[serde(deny_unknown_fields)]
    pub struct JobsRequest {
        /// In this queue.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub queue: Option<Queue>,
        /// Of this kind.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub kind: Option<Kind>,
        /// In any of these states; none named: in every state.
        #[serde(default)]
        pub state: Vec<State>,
        /// With all of these labels, as NAME=VALUE.
        #[serde(default)]
        #[cfg_attr(feature = "document", schemars(inner(regex(pattern = "="))))]
        pub label: Vec<String>,
        /// That this owner works on.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub owner: Option<Owner>,
        /// With this text in the payload.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub payload_contains: Option<String>,
        /// Where the page before ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<u64>,
        /// At most this many.
        #[serde(default = "page")]
        #[cfg_attr(feature = "document", schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX)))]
        pub limit: usize,
    }

    /// One page of jobs. It may be short, or even empty, and still not be the last.
    pub struct JobPage {
        /// The jobs.
        pub jobs: Vec<JobView>,
        /// Where the next page starts; missing: this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next: Option<u64>,
    }
}
