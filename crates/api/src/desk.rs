//! What operators, schedulers and request handlers say: acting on jobs, queues, schedules, operations, doubts.

use fencehold_core::job::{EffectName, JobId, Kind, Queue, ScheduleName, State, UniqueKey};
use fencehold_core::ledger::{EffectState, OnDoubt};
use fencehold_core::{HoldId, Owner, Reason, Token};

use crate::job::{ClaimedJob, Terms};
use crate::lease::page;
use crate::{Json, Labels, Moment, Outcome, wire};

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
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
    pub enum ActOn {
        /// These.
        Jobs(Vec<JobId>),
        /// All that match, a page at a time: each is looked at and acted upon in one step.
        Matching {
            /// Which.
            #[serde(deserialize_with = "crate::value::from_object")]
            filter: JobFilter,
            /// Where the page before ended.
            #[serde(default, skip_serializing_if = "Option::is_none")]
            cursor: Option<u64>,
            /// At most this many in one call.
            #[serde(default = "page")]
            #[cfg_attr(feature = "document", schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX)))]
            limit: usize,
        },
    }

    /// Which jobs. What is not named does not matter.
    #[derive(Default)]
    #[serde(deny_unknown_fields, default)]
    pub struct JobFilter {
        /// In this queue.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub queue: Option<Queue>,
        /// Of this kind.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub kind: Option<Kind>,
        /// In any of these states; none named: in every state.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub states: Vec<State>,
        /// With all of these labels.
        #[serde(skip_serializing_if = "Labels::is_empty")]
        pub labels: Labels,
        /// That this owner works on.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub owner: Option<Owner>,
        /// With this text in the payload.
        #[serde(skip_serializing_if = "Option::is_none")]
        pub payload_contains: Option<String>,
    }

    /// What can be done to a job.
    #[serde(rename_all = "snake_case", deny_unknown_fields)]
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
        pub outcome: Outcome<State>,
    }

    /// What a queue does.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
    pub enum QueueMode {
        /// It takes jobs and hands them out.
        Open,
        /// It takes jobs and hands none out.
        Paused,
        /// It hands jobs out and takes no new ones.
        Draining,
    }

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

    /// Every queue.
    pub struct Queues {
        /// Each of them.
        pub queues: Vec<QueueView>,
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

    /// How many jobs there are in which state.
    pub struct Counts {
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
        pub indeterminate: u64,
    }

    /// A schedule: when to enqueue what.
    #[serde(deny_unknown_fields)]
    pub struct ScheduleSpec {
        /// Its name.
        pub name: ScheduleName,
        /// A cron line of five fields.
        #[cfg_attr(feature = "document", schemars(length(min = 1)))]
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
        #[serde(default = "Json::null")]
        pub payload: Json,
        /// On which terms they are tried.
        #[serde(default)]
        pub terms: Terms,
        /// Their labels.
        #[serde(default, skip_serializing_if = "Labels::is_empty")]
        pub labels: Labels,
        /// Who made it.
        pub by: Owner,
    }

    /// Every schedule.
    pub struct Schedules {
        /// Each of them.
        pub schedules: Vec<ScheduleView>,
    }

    /// A schedule and where it stands.
    pub struct ScheduleView {
        /// What it says.
        pub spec: ScheduleSpec,
        /// When it fires next; missing: never again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub next: Option<Moment>,
        /// For which moment it fired last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub last: Option<Moment>,
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

    /// The terms on which an operation begins.
    #[serde(deny_unknown_fields)]
    pub struct BeginRequest {
        /// The id of its job, should it be new. Missing: made by the server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub id: Option<JobId>,
        /// Its idempotency key: the same operation has the same.
        pub key: UniqueKey,
        /// What it is about: the same operation has the same.
        #[serde(default = "Json::null")]
        pub payload: Json,
        /// The hold id of this beginning: 128 random bits, made for it alone. A secret.
        pub hold: HoldId,
        /// Who begins.
        pub owner: Owner,
        /// How long the claim or a renewal lasts.
        #[cfg_attr(feature = "document", schemars(range(min = fencehold_core::limits::TTL_MS_MIN, max = fencehold_core::limits::TTL_MS_MAX)))]
        pub ttl_ms: u64,
        /// For how long the key is remembered.
        #[cfg_attr(feature = "document", schemars(range(min = 1, max = fencehold_core::limits::UNIQUE_WINDOW_MS_MAX)))]
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
    #[serde(rename_all = "snake_case")]
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
            #[serde(default, deserialize_with = "Json::present", skip_serializing_if = "Option::is_none")]
            result: Option<Json>,
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
    #[serde(deny_unknown_fields)]
    pub struct FindingsRequest {
        /// Where the page before ended.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub cursor: Option<u64>,
        /// At most this many jobs.
        #[serde(default = "page")]
        #[cfg_attr(feature = "document", schemars(range(min = 1, max = fencehold_core::limits::PAGE_MAX)))]
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
        pub at: Moment,
        /// The job that undoes it, once it was enqueued.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        pub undo_job: Option<JobId>,
    }

    /// What about an effect people should know.
    #[derive(Copy, Eq)]
    #[serde(rename_all = "snake_case")]
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

    /// What a person says of an effect that nobody knew of.
    #[serde(deny_unknown_fields)]
    pub struct ResolveRequest {
        /// Its job.
        pub job: JobId,
        /// Which effect.
        pub effect: EffectName,
        /// It happened, and gave this; missing: it did not happen.
        #[serde(default, deserialize_with = "Json::present", skip_serializing_if = "Option::is_none")]
        pub happened: Option<Json>,
        /// Who says so.
        pub by: Owner,
    }

    /// What became of a person's word.
    pub struct Resolved {
        /// It counts, or why not.
        pub outcome: Outcome<()>,
    }
}

fn utc() -> String {
    "UTC".to_owned()
}
