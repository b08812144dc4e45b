//! What happened, for people, metrics and audit. Never a hold id.

use serde::{Deserialize, Serialize};

use crate::job::{AttemptOutcome, JobKind, JobState, QueueName, ScheduleName};
use crate::key::{Key, Namespace, Owner, Reason, Task};
use crate::lease::LeaseOutcome;
use crate::token::Token;

/// One fact about one key, as the rules state it. The store adds where and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventData {
    /// The key was granted.
    LeaseAcquired {
        /// The new token.
        token: Token,
        /// To whom.
        owner: Owner,
        /// What for.
        task: Option<Task>,
        /// For how long at a time.
        ttl_ms: u64,
    },
    /// A lease ended, one way or another.
    LeaseEnded {
        /// Its token.
        token: Token,
        /// Who had it.
        owner: Owner,
        /// What for.
        task: Option<Task>,
        /// How it ended.
        outcome: LeaseOutcome,
        /// Who ended it, where somebody did.
        by: Option<Owner>,
        /// Why, if someone did.
        reason: Option<Reason>,
    },
    /// A holder whose hold is over tried to act, and was refused.
    StaleWriteBlocked {
        /// The token that it showed.
        token: Token,
        /// The key's newest token.
        current_token: Token,
        /// What it tried.
        action: BlockedAction,
        /// How its hold had ended, as far as is known.
        outcome: Option<LeaseOutcome>,
    },
    /// A contender asked the holder to yield.
    YieldRequested {
        /// The holder's token.
        token: Token,
        /// Who asks.
        contender: Owner,
        /// The contender's task.
        task: Option<Task>,
        /// The contender's priority.
        priority: i16,
        /// In how many milliseconds the holder should be gone.
        yield_in_ms: u64,
    },
    /// The contender gave up; the holder may stay.
    YieldWithdrawn {
        /// The holder's token.
        token: Token,
    },
    /// Someone showed a token that this store never gave. An alarm: see `fencehold store advance`.
    StoreRewound {
        /// The token that was shown.
        token: Token,
        /// The largest that the store knows of for this key.
        current_token: Token,
    },
    /// A long-free key's record was removed; the namespace's floor keeps its tokens from coming back.
    KeyCollected {
        /// The key's last token.
        token: Token,
    },
    /// A kept row could not be read; it was set aside and the rest is served.
    RowUnreadable {
        /// What was wrong with it.
        message: String,
    },
    /// A job was enqueued.
    JobEnqueued {
        /// Where.
        queue: QueueName,
        /// What it is.
        kind: JobKind,
        /// How it stands.
        state: JobState,
    },
    /// An attempt at a job began.
    JobClaimed {
        /// Its token.
        token: Token,
        /// Who makes it.
        owner: Owner,
        /// Which attempt of this job it is, from 1.
        attempt: u32,
    },
    /// An attempt at a job ended.
    JobAttemptEnded {
        /// Its token.
        token: Token,
        /// Who made it.
        owner: Owner,
        /// How it ended.
        outcome: AttemptOutcome,
        /// How the job stands now.
        state: JobState,
        /// In how many milliseconds it is tried again, where it is.
        retry_in_ms: Option<u64>,
    },
    /// Someone called a running job off; its holder learns at its next renewal.
    JobCancelRequested {
        /// The holder's token.
        token: Token,
        /// Who.
        by: Owner,
        /// Why.
        reason: Option<Reason>,
    },
    /// A job was called off.
    JobCancelled {
        /// Who.
        by: Owner,
        /// Why.
        reason: Option<Reason>,
    },
    /// Someone had a job start over.
    JobRetried {
        /// Who.
        by: Owner,
        /// How it stood.
        state: JobState,
    },
    /// A job was deleted by hand.
    JobDeleted {
        /// Who.
        by: Owner,
        /// How it stood.
        state: JobState,
        /// Whether a worker had it.
        forced: bool,
    },
    /// The undoing of a job's effects went a step further.
    EffectCompensationEnded {
        /// Which effect.
        effect: String,
        /// Whether it could be undone.
        compensated: bool,
    },
    /// A queue was paused, resumed or is being drained.
    QueueChanged {
        /// Which queue.
        queue: QueueName,
        /// What it does from now on: `open`, `paused`, `draining`.
        mode: String,
        /// Who.
        by: Owner,
    },
    /// A schedule fired.
    ScheduleFired {
        /// Which schedule.
        schedule: ScheduleName,
        /// For which moment, in wall time.
        due_at_ms: u64,
    },
    /// Someone completed or failed a job in place of its holder.
    JobEndedByForce {
        /// Who.
        by: Owner,
        /// Why.
        reason: Reason,
        /// How it stands now.
        state: JobState,
    },
}

impl EventData {
    /// The task that it names: the holder's, or that of the contender who asks the holder to yield.
    pub fn task(&self) -> Option<&Task> {
        match self {
            EventData::LeaseAcquired { task, .. }
            | EventData::LeaseEnded { task, .. }
            | EventData::YieldRequested { task, .. } => task.as_ref(),
            _ => None,
        }
    }

    /// Whether a renewal was refused because its holder had released meanwhile. The two crossed on their way; nothing was lost.
    pub fn is_renewal_after_release(&self) -> bool {
        let (renew, released) = (BlockedAction::Renew, Some(LeaseOutcome::Released));
        matches!(self, EventData::StaleWriteBlocked { action, outcome, .. } if (*action, *outcome) == (renew, released))
    }

    /// The stale write that was refused, as people read it. `None`: it tells of something else.
    pub fn stale_write_refused(&self) -> Option<String> {
        let EventData::StaleWriteBlocked { token, current_token, action, outcome } = self else {
            return None;
        };
        let action = action.name();
        Some(if token < current_token {
            format!("stale {action} under token {token} refused: the newest is {current_token}")
        } else {
            let how = outcome.map_or_else(|| "is over".to_owned(), |outcome| format!("was {outcome}"));
            format!("late {action} under token {token} refused: its hold {how}")
        })
    }

    /// Whether it names this task or one below it.
    pub fn is_covered_by(&self, above: &Task) -> bool {
        self.task().is_some_and(|task| above.covers(task))
    }
}

/// What a stale holder tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum BlockedAction {
    /// To renew.
    Renew,
    /// To release.
    Release,
    /// To complete its job.
    Complete,
    /// To report an error.
    Fail,
    /// To put its job off.
    Snooze,
    /// To hand its job back.
    #[serde(rename(serialize = "release"))]
    #[cfg_attr(feature = "schema", schemars(skip))]
    ReleaseJob,
    /// To write a checkpoint.
    Checkpoint,
    /// To write how far it has come.
    Progress,
    /// To begin an effect.
    BeginEffect,
    /// To record an effect.
    RecordEffect,
    /// To write what its lease protects, past a fence.
    Write,
}

impl BlockedAction {
    /// What was tried, as a noun.
    pub fn name(self) -> &'static str {
        match self {
            BlockedAction::Renew => "renewal",
            BlockedAction::Release | BlockedAction::ReleaseJob => "release",
            BlockedAction::Complete => "completion",
            BlockedAction::Fail => "report of a failure",
            BlockedAction::Snooze => "snooze",
            BlockedAction::Checkpoint => "checkpoint",
            BlockedAction::Progress => "note of progress",
            BlockedAction::BeginEffect => "intent",
            BlockedAction::RecordEffect => "record of an effect",
            BlockedAction::Write => "write",
        }
    }
}

/// What is recorded of a write that was refused outside the store, in a transaction or at a fence of the caller's own. `None`: the token
/// is that of a live holder, so it is not stale here. `current`: the newest token there is, and how the hold under this one ended.
pub fn blocked_elsewhere(
    token: Token,
    action: BlockedAction,
    is_holder: bool,
    current: (Token, Option<LeaseOutcome>),
) -> Option<EventData> {
    let (newest, outcome) = current;
    let blocked = EventData::StaleWriteBlocked { token, current_token: newest.max(token), action, outcome };
    (!is_holder).then_some(blocked)
}

/// A fact with its place in the store's story.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Event {
    /// Its number: grows by one, for ever; also the cursor for watching.
    pub seq: u64,
    /// When, in wall time, for people.
    pub at_ms: u64,
    /// Its namespace.
    pub namespace: Namespace,
    /// Which key.
    pub key: Key,
    /// What happened.
    pub data: EventData,
}

impl Event {
    /// Places a fact.
    pub fn new(seq: u64, at_ms: u64, namespace: Namespace, key: Key, data: EventData) -> Self {
        Event { seq, at_ms, namespace, key, data }
    }
}
