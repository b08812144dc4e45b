//! What operators, schedulers and request handlers say: acting on jobs, queues, schedules, operations, doubts.

use fencehold_core::job::{EffectName, JobId, Kind, Queue, Refusal, ScheduleName, State, Terms, UniqueKey};
use fencehold_core::ledger::{EffectState, OnDoubt};
use fencehold_core::wire::{AsJson, AsMoment, AsOptionalJson, AsOptionalMoment, null};
use fencehold_core::{HoldId, Owner, Reason, Token};

use super::{ClaimedJob, Counts, JobFilter};
use crate::StoreError;
use crate::json::{AsLabels, AsNewId, AsResult, Labels, page, utc};

wire! {
    /// Which jobs to act upon, and how.
    #[serde(deny_unknown_fields)]
    pub struct ActRequest {
        /// Which jobs.
        pub on: ActOn,
        /// What to do to them.
        pub action: Action,
        /// Who.
        pub by: Owner,
        /// Only say what would be done.
        #[serde(default)]
        pub dry_run: bool,
    }

    /// A choice of jobs to act upon.
    #[serde(deny_unknown_fields)]
    pub enum ActOn {
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
    pub enum Action {
        /// Call it off.
        Cancel {
            /// Why.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            reason: Option<Reason>,
            /// Do not wait for its holder.
            #[serde(default)]
            now: bool,
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
    pub struct Acted {
        /// One for each job that was acted upon, or would be.
        pub items: Vec<ActedItem>,
        /// Where the next page starts; missing: this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next: Option<u64>,
    }

    /// What was done to one job.
    pub struct ActedItem {
        /// Which.
        pub id: JobId,
        /// How it stands now (a deleted one: how it stood), or why nothing was done.
        #[serde(with = "AsResult")]
        #[schemars(with = "crate::json::Outcome<State>")]
        pub outcome: Result<State, Refusal>,
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
    pub struct QueueOrder {
        /// Which.
        pub queue: Queue,
        /// What.
        pub mode: QueueMode,
        /// Who says so.
        pub by: Owner,
    }

    /// A queue.
    pub struct QueueView {
        /// Its name.
        pub queue: Queue,
        /// What it does.
        pub mode: QueueMode,
        /// How many jobs it has.
        pub counts: Counts,
        /// How many claims wait for jobs from it.
        pub claimers: u64,
    }
}

/// What is in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contents {
    /// How many jobs of it are in each state.
    pub counts: Counts,
    /// How many schedules enqueue into it.
    pub schedules: u64,
}

impl Contents {
    /// Whether the queue can be removed.
    pub fn check(mut self, queue: &Queue) -> Result<(), StoreError> {
        let jobs = State::ALL.map(|state| (*self.counts.of(state), state.to_string()));
        let schedules = (self.schedules, "schedules".to_owned());
        let there = jobs.into_iter().chain([schedules]).filter(|(count, _)| *count > 0);
        let there: Vec<String> = there.map(|(count, what)| format!("{count} {what}")).collect();
        if there.is_empty() {
            return Ok(());
        }
        Err(StoreError::NotEmpty { queue: queue.clone(), holds: there.join(", ") })
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
        pub zone: String,
        /// Where its jobs stand in line.
        #[serde(default)]
        pub queue: Queue,
        /// What they are.
        pub kind: Kind,
        /// What they are about.
        #[serde(default = "null", with = "AsJson")]
        pub payload: Box<str>,
        /// On which terms they are tried.
        #[serde(default)]
        pub terms: Terms,
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
        pub next_wall_ms: Option<u64>,
        /// For which moment it fired last.
        #[serde(rename = "last", default, with = "AsOptionalMoment", skip_serializing_if = "Option::is_none")]
        pub last_wall_ms: Option<u64>,
    }

    /// The terms on which an operation begins.
    #[serde(deny_unknown_fields)]
    pub struct BeginRequest {
        /// The id of its job, should it be new. Missing: made by the server.
        #[serde(default = "JobId::nil", with = "AsNewId", skip_serializing_if = "JobId::is_nil")]
        pub id: JobId,
        /// Its idempotency key: the same operation has the same.
        pub key: UniqueKey,
        /// What it is about: the same operation has the same.
        #[serde(default = "null", with = "AsJson")]
        pub payload: Box<str>,
        /// The hold id of this beginning: 128 random bits, made for it alone. A secret.
        pub hold: HoldId,
        /// Who begins.
        pub owner: Owner,
        /// How long the claim or a renewal lasts.
        #[schemars(range(min = fencehold_core::limits::TTL_MS_MIN, max = fencehold_core::limits::TTL_MS_MAX))]
        pub ttl_ms: u64,
        /// For how long the key is remembered.
        #[schemars(range(min = 1, max = fencehold_core::limits::UNIQUE_WINDOW_MS_MAX))]
        pub window_ms: u64,
        /// What to do when an earlier holder died.
        #[serde(default)]
        pub policy: OnDoubt,
    }

    /// What was found of an operation.
    pub struct Began {
        /// What.
        pub what: Begun,
        /// How long the request stood in line before the moment that decided.
        pub waited_ms: u64,
        /// Whether an earlier sending of the same request was given the operation.
        #[serde(default)]
        pub resumed: bool,
    }

    /// What has become of an operation.
    pub enum Begun {
        /// It is the caller's to carry out.
        New(Box<ClaimedJob>),
        /// Somebody carries it out at the moment.
        InProgress {
            /// Its job.
            job: JobId,
            /// Who.
            owner: Owner,
            /// Under which token.
            token: Token,
            /// How long that claim lasts unless it is renewed.
            expires_in_ms: u64,
        },
        /// It was carried out.
        Done {
            /// Its job.
            job: JobId,
            /// The stored answer.
            #[serde(default, with = "AsOptionalJson", skip_serializing_if = "Option::is_none")]
            result: Option<Box<str>>,
        },
        /// It failed for good, or was called off.
        Failed {
            /// Its job.
            job: JobId,
            /// How it ended.
            state: State,
            /// What went wrong last.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            error: Option<Box<str>>,
        },
        /// The key was used for something else.
        Conflict {
            /// The job that came first.
            job: JobId,
        },
        /// Its holder died, and nobody knows how far it came: a person must look.
        Indeterminate {
            /// Its job.
            job: JobId,
        },
    }

    /// Which findings to list.
    #[derive(Default)]
    #[serde(deny_unknown_fields)]
    pub struct FindingsRequest {
        /// Where the page before ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<u64>,
        /// At most this many jobs.
        #[serde(default = "page")]
        #[schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX))]
        pub limit: usize,
    }

    /// One page of findings. It may be empty and still not be the last.
    pub struct FindingPage {
        /// The findings.
        pub findings: Vec<Finding>,
        /// Where the next page starts; missing: this was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next: Option<u64>,
    }

    /// An effect that people should know of.
    pub struct Finding {
        /// What about it.
        pub what: FindingKind,
        /// Its job.
        pub job: JobId,
        /// The job's queue.
        pub queue: Queue,
        /// The job's kind.
        pub kind: Kind,
        /// How the job stands.
        pub state: State,
        /// Which effect.
        pub effect: EffectName,
        /// How the effect stands.
        pub effect_state: EffectState,
        /// The attempt that announced or recorded it.
        pub token: Token,
        /// When.
        #[serde(rename = "at", with = "AsMoment")]
        pub at_wall_ms: u64,
        /// The job that undoes it, once it was enqueued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub undo_job: Option<JobId>,
    }

    /// What about an effect people should know.
    #[derive(Copy)]
    pub enum FindingKind {
        /// It was announced, and nobody has said what came of it.
        OpenIntent,
        /// It is to be undone, and is not yet.
        NotYetUndone,
        /// It could not be undone.
        UndoFailed,
        /// It was undone.
        Undone,
        /// An earlier attempt than the newest recorded it.
        Superseded,
    }
}

impl FindingKind {
    /// The words for it.
    pub const fn name(self) -> &'static str {
        match self {
            FindingKind::OpenIntent => "open intent",
            FindingKind::NotYetUndone => "not yet undone",
            FindingKind::UndoFailed => "undo failed",
            FindingKind::Undone => "undone",
            FindingKind::Superseded => "of a superseded token",
        }
    }
}

wire! {
    /// What a person says of an effect that nobody knew of.
    #[serde(deny_unknown_fields)]
    pub struct ResolveRequest {
        /// Its job.
        pub job: JobId,
        /// Which effect.
        pub effect: EffectName,
        /// It happened, and gave this; missing: it did not happen.
        #[serde(default, with = "AsOptionalJson", skip_serializing_if = "Option::is_none")]
        pub happened: Option<Box<str>>,
        /// Who says so.
        pub by: Owner,
    }
}
