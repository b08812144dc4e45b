//! What a store keeps of one key. Deadlines are not here: each store keeps them by its own clock, or judges by
//! observation.

use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};

use crate::event::EventData;
use crate::hold::HoldHash;
use crate::key::{Owner, Reason, Task};
use crate::lease::command::{PreemptRequest, YieldRequest};
use crate::limits::HISTORY_MAX;
use crate::time::Timestamp;
use crate::token::Token;

/// All that is kept of one key: its counter, who holds it, and how the last holds ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct LeaseRecord {
    /// The newest token ever given or consumed for this key. While the key is held, the holder's token.
    pub counter: Token,
    /// The hold, if there is one. It may have run out without anybody having noticed yet.
    pub hold: Option<Hold>,
    /// The last endings. Boxed: a million keys that were never contended have none.
    pub history: Option<Box<HoldHistory>>,
}

/// One hold on a key. Its token is the record's counter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold {
    /// Recognises the holder's hold id.
    pub hash: HoldHash,
    /// Who may renew.
    pub owner: Owner,
    /// What it serves.
    pub task: Option<Task>,
    /// How long a grant or a renewal lasts. Fixed at acquisition.
    pub ttl_ms: u64,
    /// How long it may be held in all, however often it is renewed.
    pub max_age_ms: Option<NonZeroU64>,
    /// When it was granted.
    pub since: Timestamp,
    /// Its rank against contenders that preempt.
    pub priority: i16,
    /// A contender has asked the holder to yield.
    pub yield_request: Option<Box<PendingYield>>,
}

/// A contender's request that the holder yield, as the record of a key or a job keeps it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PendingYield {
    /// Who asks.
    pub contender: Owner,
    /// What for.
    pub task: Option<Task>,
    /// The contender's priority.
    pub priority: i16,
    /// By when, in store time.
    pub yield_at_ms: u64,
}

impl PendingYield {
    /// The request as the holder sees it now.
    pub fn seen_at(&self, now_ms: u64) -> YieldRequest {
        YieldRequest {
            contender: self.contender.clone(),
            task: self.task.clone(),
            priority: self.priority,
            yield_in_ms: self.yield_at_ms.saturating_sub(now_ms),
        }
    }

    /// That it was made, of the hold under this token.
    pub(crate) fn requested(&self, token: Token, now_ms: u64) -> EventData {
        let YieldRequest { contender, task, priority, yield_in_ms } = self.seen_at(now_ms);
        EventData::YieldRequested { token, contender, task, priority, yield_in_ms }
    }
}

impl PreemptRequest {
    /// The request as a record keeps it. A contender that was promised a moment must find the hold over by then.
    pub(crate) fn pending(&self, now_ms: u64, earlier: Option<&PendingYield>) -> PendingYield {
        let promised_ms = earlier.map_or(u64::MAX, |earlier| earlier.yield_at_ms);
        PendingYield {
            contender: self.contender.clone(),
            task: self.task.clone(),
            priority: self.priority,
            yield_at_ms: now_ms.saturating_add(self.yield_in_ms).min(promised_ms),
        }
    }
}

/// The last endings of a key, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct HoldHistory {
    /// At most [`HISTORY_MAX`].
    pub endings: Vec<Ending>,
    /// Store time of the newest ending that had to be forgotten. A hold id older than this may have been one
    /// of those.
    pub forgotten_at_ms: Option<u64>,
}

/// How one hold ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ending {
    /// Its token.
    pub token: Token,
    /// Recognises its hold id.
    pub hash: HoldHash,
    /// Who had it.
    pub owner: Owner,
    /// What for.
    pub task: Option<Task>,
    /// How it ended.
    pub outcome: LeaseOutcome,
    /// When it ended.
    pub at: Timestamp,
    /// Who ended it by force, or had it asked to yield, if someone did.
    pub by: Option<Owner>,
    /// Why, if someone ended it by force.
    pub reason: Option<Reason>,
}

worded! {
    /// The ways in which a hold can end.
    #[derive(PartialOrd, Ord)]
    pub enum LeaseOutcome {
        /// Its holder gave it back.
        Released = "released",
        /// Its time ran out: the holder died, stalled, or could not reach the store.
        Expired = "expired",
        /// Someone ended it by force.
        Revoked = "revoked",
        /// It was held for its whole `max_age`.
        AgedOut = "aged out",
        /// It was asked to yield: its holder gave it back, or its time ran out.
        Yielded = "yielded",
        /// It was granted to a waiter that had already gone, and was freed at once.
        Abandoned = "abandoned",
        /// `store advance` ended every lease.
        Advanced = "ended by store advance",
    }
}

impl LeaseOutcome {
    /// What happened, in words for code that relied on the hold.
    pub fn told(self, by: Option<&Owner>, reason: Option<&Reason>) -> String {
        let by = by.map(|by| format!(" by {by}")).unwrap_or_default();
        let reason = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
        match self {
            LeaseOutcome::Expired => "it expired: it was not renewed in time".to_owned(),
            LeaseOutcome::AgedOut => "it was held for its whole max age".to_owned(),
            LeaseOutcome::Yielded if by.is_empty() => {
                "it was given back when it was asked to yield".to_owned()
            }
            LeaseOutcome::Yielded => format!("it was asked to yield{by}, and its time was up"),
            how => format!("it was {how}{by}{reason}"),
        }
    }
}

impl Ending {
    /// Whether its holder gave it back. One that had to yield and let its time run out says who asked for that.
    pub fn was_given_back(&self) -> bool {
        match self.outcome {
            LeaseOutcome::Released => true,
            LeaseOutcome::Yielded => self.by.is_none(),
            _ => false,
        }
    }
}

impl LeaseRecord {
    /// The endings that are remembered, oldest first.
    pub fn endings(&self) -> &[Ending] {
        self.history.as_ref().map_or(&[], |history| &history.endings)
    }

    /// Whether this hold id is the holder's, or is remembered among the ended.
    pub fn knows(&self, hash: HoldHash) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.hash == hash) || self.ending_of(hash).is_some()
    }

    /// The ending of the hold with this id, if it is remembered.
    pub(crate) fn ending_of(&self, hash: HoldHash) -> Option<&Ending> {
        self.endings().iter().rev().find(|ending| ending.hash == hash)
    }

    /// Whether a hold id of this age may have ended here and been forgotten. One of no age was never sent before, so
    /// it cannot have.
    pub fn may_have_forgotten(&self, now_ms: u64, hold_age_ms: u64) -> bool {
        // Either clock may have been read just before it ticked.
        const ROUNDING_MS: u64 = 2;
        let made_at_ms = now_ms.saturating_sub(hold_age_ms).saturating_sub(ROUNDING_MS);
        let forgotten_at_ms = self.history.as_ref().and_then(|history| history.forgotten_at_ms);
        hold_age_ms > 0 && forgotten_at_ms.is_some_and(|at_ms| at_ms >= made_at_ms)
    }

    /// Ends the hold, if there is one, and remembers how.
    pub(crate) fn end(
        &mut self,
        how: LeaseOutcome,
        at: Timestamp,
        by: Option<Owner>,
        reason: Option<Reason>,
    ) {
        let Some(hold) = self.hold.take() else { return };
        let history = self.history.get_or_insert_default();
        while history.endings.len() >= HISTORY_MAX {
            let forgotten = history.endings.remove(0);
            history.forgotten_at_ms = history.forgotten_at_ms.max(Some(forgotten.at.store_ms));
        }
        let Hold { hash, owner, task, .. } = hold;
        history
            .endings
            .push(Ending { token: self.counter, hash, owner, task, outcome: how, at, by, reason });
    }
}
