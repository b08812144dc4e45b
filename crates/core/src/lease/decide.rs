//! The decision: a pure function of how a key stands, what is kept of it, and what is asked.

use crate::error::Refusal;
use crate::event::EventData;
use crate::key::{Owner, Reason};
use crate::lease::command::{Acquire, Grant, LeaseCommand, LeaseCommandResult};
use crate::lease::record::{Ending, Hold, LeaseOutcome, LeaseRecord};
use crate::time::Timestamp;
use crate::token::Token;

/// How a key stands in its store at the step that decides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseStanding {
    /// The moment, by the store's clock.
    pub now: Timestamp,
    /// The namespace's floor: every token given from now on is larger.
    pub floor: Token,
    /// Whether the recorded hold is live.
    pub term: HoldState,
}

/// Whether the recorded hold is live.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoldState {
    /// No hold is recorded.
    Free,
    /// The hold is live.
    Live {
        /// For how long; more than zero.
        remaining_ms: u64,
    },
    /// The hold has run out, and no sweep has noted it yet.
    Over {
        /// For how long.
        since_ms: u64,
    },
}

impl HoldState {
    /// How a hold with this deadline stands; `None`: no hold is recorded.
    pub fn at(now_ms: u64, deadline_ms: Option<u64>) -> Self {
        match deadline_ms {
            None => HoldState::Free,
            Some(deadline_ms) if now_ms < deadline_ms => {
                HoldState::Live { remaining_ms: deadline_ms - now_ms }
            }
            Some(deadline_ms) => HoldState::Over { since_ms: now_ms - deadline_ms },
        }
    }

    /// Whether the hold is live.
    pub fn is_live(self) -> bool {
        matches!(self, HoldState::Live { .. })
    }
}

/// What follows from a command, as data. The code that keeps the record carries it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision<Record, Reply, Refusal> {
    /// The record to keep from now on; `None`: as it was.
    pub record: Option<Record>,
    /// What becomes of the deadline.
    pub deadline: DeadlineChange,
    /// The answer.
    pub reply: Result<Reply, Refusal>,
    /// What happened.
    pub facts: Vec<EventData>,
}

/// What follows from a command on a key.
pub type LeaseDecision = Decision<LeaseRecord, LeaseCommandResult, Refusal>;

/// What becomes of a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeadlineChange {
    /// It stays.
    Keep,
    /// The lease lasts this long from now.
    LastsMs(u64),
    /// There is no hold any more, so no deadline.
    Clear,
}

/// Decides one command. Total: every input has an answer.
///
/// # Panics
///
/// In debug builds, if the decision breaks an [invariant](crate::LeaseViolation): that is a bug in the rules.
pub fn decide(standing: &LeaseStanding, record: &LeaseRecord, command: &LeaseCommand) -> LeaseDecision {
    let case = LeaseCase { standing, record };
    let decision = match command {
        LeaseCommand::Acquire(acquire) => case.acquire(acquire),
        LeaseCommand::Renew { hash, token } => case.renew(*hash, *token),
        LeaseCommand::Release { hash, token } => case.release(*hash, *token),
        LeaseCommand::Abandon { hash } => case.abandon(*hash),
        LeaseCommand::Revoke { by, reason, only_token } => case.revoke(by, reason, *only_token),
        LeaseCommand::Expire => case.expire(),
        LeaseCommand::Preempt(preempt) => case.preempt(preempt),
        LeaseCommand::Withdraw => case.withdraw(),
        LeaseCommand::Advance { lift, by } => case.advance(*lift, by),
    };
    #[cfg(debug_assertions)]
    if let Err(violation) = crate::invariant::check(standing, record, command, &decision) {
        panic!("{violation}: {command:?} on {record:?} at {standing:?} gave {decision:?}");
    }
    decision
}

/// One key at one moment: what every rule looks at.
pub(super) struct LeaseCase<'a> {
    pub(super) standing: &'a LeaseStanding,
    pub(super) record: &'a LeaseRecord,
}

impl LeaseCase<'_> {
    fn acquire(&self, ask: &Acquire) -> LeaseDecision {
        if let Some(alarm) = ask.seen_token.and_then(|seen| self.rewound(seen)) {
            return alarm;
        }
        if let Some(hold) = &self.record.hold {
            match self.standing.term {
                HoldState::Live { remaining_ms } if hold.hash == ask.hash => {
                    let grant = Grant { token: self.record.counter, remaining_ms, resumed: true };
                    return answer(Ok(LeaseCommandResult::Granted(grant)));
                }
                HoldState::Live { remaining_ms } => {
                    let held = || Refusal::Held {
                        owner: hold.owner.clone(),
                        task: hold.task.clone(),
                        remaining_ms,
                        token: self.record.counter,
                    };
                    return answer(Err(self.used(self.record, ask).unwrap_or_else(held)));
                }
                HoldState::Over { .. } | HoldState::Free => {}
            }
        }
        // It is free now. What has run out is noted first, so that the caller's own hold, if it was that one,
        // is found among the ended.
        let mut next = self.run_out();
        let record = next.record.as_ref().unwrap_or(self.record);
        if let Some(used) = self.used(record, ask) {
            next.reply = Err(used);
            return next;
        }
        let newest = record.counter.max(self.standing.floor);
        let Some(token) = newest.next_to_grant() else {
            next.reply = Err(Refusal::TokensExhausted);
            return next;
        };
        let lasts_ms = ask.max_age_ms.map_or(ask.ttl_ms, |max_age_ms| ask.ttl_ms.min(max_age_ms.get()));
        let mut record = record.clone();
        record.counter = token;
        record.hold = Some(Hold {
            hash: ask.hash,
            owner: ask.owner.clone(),
            task: ask.task.clone(),
            ttl_ms: ask.ttl_ms,
            max_age_ms: ask.max_age_ms,
            since: self.standing.now,
            priority: ask.priority,
            yield_request: None,
        });
        next.record = Some(record);
        next.deadline = DeadlineChange::LastsMs(lasts_ms);
        next.reply = Ok(LeaseCommandResult::Granted(Grant { token, remaining_ms: lasts_ms, resumed: false }));
        next.facts.push(EventData::LeaseAcquired {
            token,
            owner: ask.owner.clone(),
            task: ask.task.clone(),
            ttl_ms: ask.ttl_ms,
        });
        next
    }

    /// The refusal of a hold id that has ended on this key, or may have.
    fn used(&self, record: &LeaseRecord, ask: &Acquire) -> Option<Refusal> {
        if let Some(Ending { token, outcome, .. }) = record.ending_of(ask.hash) {
            return Some(Refusal::HoldIdUsed { token: Some(*token), outcome: Some(*outcome) });
        }
        let forgotten = record.may_have_forgotten(self.standing.now.store_ms, ask.hold_age_ms);
        forgotten.then_some(Refusal::HoldIdUsed { token: None, outcome: None })
    }

    fn expire(&self) -> LeaseDecision {
        match self.standing.term {
            HoldState::Live { remaining_ms } => answer(Err(Refusal::NotExpired { remaining_ms })),
            HoldState::Over { .. } | HoldState::Free => self.run_out(),
        }
    }

    /// A token that was never given here proves that the store was rewound.
    pub(super) fn rewound(&self, shown: Token) -> Option<LeaseDecision> {
        let current = self.record.counter.max(self.standing.floor);
        (shown > current).then(|| LeaseDecision {
            facts: vec![EventData::StoreRewound { token: shown, current_token: current }],
            ..answer(Err(Refusal::StoreRewound { token: shown, current_token: current }))
        })
    }

    /// Notes a hold that has run out, if there is one.
    pub(super) fn run_out(&self) -> LeaseDecision {
        let (Some(hold), HoldState::Over { since_ms }) = (&self.record.hold, self.standing.term) else {
            return answer(Ok(LeaseCommandResult::Nothing));
        };
        let ended_at = self.standing.now.earlier(since_ms);
        let age_ms = ended_at.store_ms.saturating_sub(hold.since.store_ms);
        let notice = hold.yield_request.as_ref();
        // Why its time was up. A holder that had to yield learns for whom, also when the contender has long gone.
        let (how, by) = if hold.max_age_ms.is_some_and(|max_age_ms| age_ms >= max_age_ms.get()) {
            (LeaseOutcome::AgedOut, None)
        } else if let Some(notice) = notice.filter(|notice| notice.yield_at_ms <= ended_at.store_ms) {
            (LeaseOutcome::Yielded, Some(notice.contender.clone()))
        } else {
            (LeaseOutcome::Expired, None)
        };
        let outcome = LeaseCommandResult::Expired { token: self.record.counter, how };
        self.ended(how, ended_at, by, None, outcome)
    }

    /// Ends the hold, if there is one.
    pub(super) fn ended(
        &self,
        how: LeaseOutcome,
        at: Timestamp,
        by: Option<Owner>,
        reason: Option<Reason>,
        outcome: LeaseCommandResult,
    ) -> LeaseDecision {
        let Some(hold) = &self.record.hold else { return answer(Ok(outcome)) };
        let facts = vec![EventData::LeaseEnded {
            token: self.record.counter,
            owner: hold.owner.clone(),
            task: hold.task.clone(),
            outcome: how,
            by: by.clone(),
            reason: reason.clone(),
        }];
        let mut record = self.record.clone();
        record.end(how, at, by, reason);
        LeaseDecision { record: Some(record), deadline: DeadlineChange::Clear, reply: Ok(outcome), facts }
    }
}

/// What a holder gets whose hold is over, as far as the record remembers its ending.
pub(super) fn lost(token: Token, ending: Option<&Ending>, current: Token) -> Refusal {
    Refusal::Lost {
        token,
        outcome: ending.map(|ending| ending.outcome),
        by: ending.and_then(|ending| ending.by.clone()),
        reason: ending.and_then(|ending| ending.reason.clone()),
        current_token: current,
    }
}

/// An answer that changes nothing.
pub(crate) fn answer<T, U, V>(reply: Result<U, V>) -> Decision<T, U, V> {
    Decision { record: None, deadline: DeadlineChange::Keep, reply, facts: Vec::new() }
}
