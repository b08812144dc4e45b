//! Stored events.
#![allow(missing_docs, reason = "the types that these stand for say what their fields mean")]

use serde::{Deserialize, Serialize};

use super::{EndedV1, HowV1, StateV1};
use crate::job::{Kind, Queue, ScheduleName};
use crate::lease::How;
use crate::{Attempted, Event, Fact, Key, Namespace, Owner, Reason, Task, Token};

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventV1 {
    pub seq: u64,
    pub at_wall_ms: u64,
    pub namespace: Namespace,
    pub key: Key,
    pub fact: FactV1,
}

impl From<Event> for EventV1 {
    fn from(Event { seq, at_wall_ms, namespace, key, fact }: Event) -> Self {
        EventV1 { seq, at_wall_ms, namespace, key, fact: fact.into() }
    }
}

impl From<EventV1> for Event {
    fn from(EventV1 { seq, at_wall_ms, namespace, key, fact }: EventV1) -> Self {
        Event { seq, at_wall_ms, namespace, key, fact: fact.into() }
    }
}

/// The facts, each with its fields.
macro_rules! facts {
    ($($variant:ident { $($field:ident: $kind:ty),* }),* $(,)?) => {
        /// What happened.
        #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(rename_all = "snake_case")]
        pub enum FactV1 { $($variant { $($field: $kind),* }),* }

        impl From<Fact> for FactV1 {
            fn from(fact: Fact) -> Self {
                match fact {
                    $(Fact::$variant { $($field),* } => FactV1::$variant { $($field: $field.into()),* }),*
                }
            }
        }

        impl From<FactV1> for Fact {
            fn from(stored: FactV1) -> Self {
                match stored {
                    $(FactV1::$variant { $($field),* } => Fact::$variant { $($field: $field.into()),* }),*
                }
            }
        }
    };
}

facts! {
    LeaseAcquired { token: Token, owner: Owner, task: Option<Task>, ttl_ms: u64 },
    LeaseEnded {
        token: Token, owner: Owner, task: Option<Task>, how: HowV1, by: Option<Owner>, reason: Option<Reason>
    },
    StaleWriteBlocked { stale_token: Token, current_token: Token, attempted: AttemptedV1, how: OptionalHowV1 },
    YieldAsked { token: Token, contender: Owner, task: Option<Task>, priority: i16, yield_in_ms: u64 },
    YieldWithdrawn { token: Token },
    StoreRewound { shown_token: Token, current_token: Token },
    KeyCollected { token: Token },
    RowSetAside { problem: String },
    JobEnqueued { queue: Queue, kind: Kind, state: StateV1 },
    JobClaimed { token: Token, owner: Owner, attempt: u32 },
    JobAttemptEnded { token: Token, owner: Owner, how: EndedV1, state: StateV1, again_in_ms: Option<u64> },
    JobCancelRequested { token: Token, by: Owner, reason: Option<Reason> },
    JobCancelled { by: Owner, reason: Option<Reason> },
    JobRetried { by: Owner, state: StateV1 },
    JobDeleted { by: Owner, state: StateV1, forced: bool },
    EffectUndone { effect: String, undone: bool },
    QueueChanged { queue: Queue, mode: String, by: Owner },
    ScheduleFired { schedule: ScheduleName, due_wall_ms: u64 },
}

stored_enum! {
    /// What a stale holder tried.
    AttemptedV1 of Attempted {
        Renew, Release, Complete, Fail, Snooze, HandBack, Checkpoint, Progress, Intent, Outcome,
    }
}

/// How a hold ended, as far as is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OptionalHowV1(pub Option<HowV1>);

impl From<Option<How>> for OptionalHowV1 {
    fn from(how: Option<How>) -> Self {
        OptionalHowV1(how.map(HowV1::from))
    }
}

impl From<OptionalHowV1> for Option<How> {
    fn from(OptionalHowV1(how): OptionalHowV1) -> Self {
        how.map(How::from)
    }
}
