//! Stored events.
#![allow(missing_docs, reason = "the types that these stand for say what their fields mean")]

use serde::{Deserialize, Serialize};

use super::{EndedV1, HowV1, StateV1};
use crate::job::{JobKind, QueueName, ScheduleName};
use crate::lease::LeaseOutcome;
use crate::{BlockedAction, Event, EventData, Key, Namespace, Owner, Reason, Task, Token};

stored_struct! {
    /// An event.
    EventV1 of Event { seq: u64, at_wall_ms as at_ms: u64, namespace: Namespace, key: Key, fact as data: FactV1 }
}

/// The facts, each with its fields.
macro_rules! facts {
    ($($(#[$name:meta])* $variant:ident { $($(#[$field_name:meta])* $field:ident: $kind:ty),* }),* $(,)?) => {
        /// What happened.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FactV1 { $($(#[$name])* $variant { $($(#[$field_name])* $field: $kind),* }),* }

        impl From<EventData> for FactV1 {
            fn from(fact: EventData) -> Self {
                match fact {
                    $(EventData::$variant { $($field),* } => FactV1::$variant { $($field: $field.into()),* }),*
                }
            }
        }

        impl From<FactV1> for EventData {
            fn from(stored: FactV1) -> Self {
                match stored {
                    $(FactV1::$variant { $($field),* } => EventData::$variant { $($field: $field.into()),* }),*
                }
            }
        }
    };
}

facts! {
    LeaseAcquired { token: Token, owner: Owner, task: Option<Task>, ttl_ms: u64 },
    LeaseEnded {
        token: Token, owner: Owner, task: Option<Task>, #[serde(rename = "how")] outcome: HowV1, by: Option<Owner>,
        reason: Option<Reason>
    },
    StaleWriteBlocked {
        #[serde(rename = "stale_token")] token: Token, current_token: Token,
        #[serde(rename = "attempted")] action: AttemptedV1, #[serde(rename = "how")] outcome: OptionalHowV1
    },
    #[serde(rename = "yield_asked")]
    YieldRequested { token: Token, contender: Owner, task: Option<Task>, priority: i16, yield_in_ms: u64 },
    YieldWithdrawn { token: Token },
    StoreRewound { #[serde(rename = "shown_token")] token: Token, current_token: Token },
    KeyCollected { token: Token },
    #[serde(rename = "row_set_aside")]
    RowUnreadable { #[serde(rename = "problem")] message: String },
    JobEnqueued { queue: QueueName, kind: JobKind, state: StateV1 },
    JobClaimed { token: Token, owner: Owner, attempt: u32 },
    JobAttemptEnded {
        token: Token, owner: Owner, #[serde(rename = "how")] outcome: EndedV1, state: StateV1,
        #[serde(rename = "again_in_ms")] retry_in_ms: Option<u64>
    },
    JobCancelRequested { token: Token, by: Owner, reason: Option<Reason> },
    JobCancelled { by: Owner, reason: Option<Reason> },
    JobRetried { by: Owner, state: StateV1 },
    JobDeleted { by: Owner, state: StateV1, forced: bool },
    #[serde(rename = "effect_undone")]
    EffectCompensationEnded { effect: String, #[serde(rename = "undone")] compensated: bool },
    QueueChanged { queue: QueueName, mode: String, by: Owner },
    ScheduleFired { schedule: ScheduleName, #[serde(rename = "due_wall_ms")] due_at_ms: u64 },
    JobEndedByForce { by: Owner, reason: Reason, state: StateV1 },
}

stored_enum! {
    /// What a stale holder tried.
    AttemptedV1 of BlockedAction {
        Renew, Release, Complete, Fail, Snooze,
        #[serde(rename = "hand_back")] ReleaseJob,
        Checkpoint, Progress,
        #[serde(rename = "intent")] BeginEffect,
        #[serde(rename = "outcome")] RecordEffect,
        Write,
    }
}

/// How a hold ended, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OptionalHowV1(pub Option<HowV1>);

impl From<Option<LeaseOutcome>> for OptionalHowV1 {
    fn from(how: Option<LeaseOutcome>) -> Self {
        OptionalHowV1(how.map(HowV1::from))
    }
}

impl From<OptionalHowV1> for Option<LeaseOutcome> {
    fn from(OptionalHowV1(how): OptionalHowV1) -> Self {
        how.map(LeaseOutcome::from)
    }
}
