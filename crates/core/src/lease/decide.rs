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
pub struct LeaseDecision {
    /// The record to keep from now on; `None`: as it was.
    pub record: Option<LeaseRecord>,
    /// What becomes of the deadline.
    pub deadline: DeadlineChange,
    /// The answer.
    pub reply: Result<LeaseCommandResult, Refusal>,
    /// What happened.
    pub facts: Vec<EventData>,
}

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
        if let Some(seen) = ask.seen_token
            && let Some(alarm) = self.rewound(seen)
        {
            return alarm;
        }
        if let Some(hold) = &self.record.hold {
            match self.standing.term {
                HoldState::Live { remaining_ms } if hold.hash == ask.hash => {
                    let grant = Grant { token: self.record.counter, remaining_ms, resumed: true };
                    return answer(Ok(LeaseCommandResult::Granted(grant)));
                }
                HoldState::Live { remaining_ms } => {
                    if let Some(ending) = self.record.ending_of(ask.hash) {
                        return answer(Err(Refusal::HoldIdUsed {
                            token: Some(ending.token),
                            outcome: Some(ending.outcome),
                        }));
                    }
                    if self.record.may_have_forgotten(self.standing.now.store_ms, ask.hold_age_ms) {
                        return answer(Err(Refusal::HoldIdUsed { token: None, outcome: None }));
                    }
                    return answer(Err(Refusal::Held {
                        owner: hold.owner.clone(),
                        task: hold.task.clone(),
                        remaining_ms,
                        token: self.record.counter,
                    }));
                }
                HoldState::Over { .. } | HoldState::Free => {}
            }
        }
        // It is free now. What has run out is noted first, so that the caller's own hold, if it was that one,
        // is found among the ended.
        let mut next = self.run_out();
        let record = next.record.as_ref().unwrap_or(self.record);
        if let Some(ending) = record.ending_of(ask.hash) {
            next.reply =
                Err(Refusal::HoldIdUsed { token: Some(ending.token), outcome: Some(ending.outcome) });
            return next;
        }
        if record.may_have_forgotten(self.standing.now.store_ms, ask.hold_age_ms) {
            next.reply = Err(Refusal::HoldIdUsed { token: None, outcome: None });
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
        let how = self.how_it_ran_out(hold);
        let outcome = LeaseCommandResult::Expired { token: self.record.counter, how };
        // A holder that had to yield learns for whom, also when the contender has long gone.
        let asked_by = hold
            .yield_request
            .as_ref()
            .filter(|_| how == LeaseOutcome::Yielded)
            .map(|notice| notice.contender.clone());
        self.ended(how, self.standing.now.earlier(since_ms), asked_by, None, outcome)
    }

    /// Why the time of a hold that is over was up.
    fn how_it_ran_out(&self, hold: &Hold) -> LeaseOutcome {
        let since_ms = if let HoldState::Over { since_ms } = self.standing.term { since_ms } else { 0 };
        let ended_at_ms = self.standing.now.store_ms.saturating_sub(since_ms);
        let age_ms = ended_at_ms.saturating_sub(hold.since.store_ms);
        if hold.max_age_ms.is_some_and(|max_age_ms| age_ms >= max_age_ms.get()) {
            LeaseOutcome::AgedOut
        } else if hold
            .yield_request
            .as_ref()
            .is_some_and(|notice| notice.yield_at_ms <= ended_at_ms)
        {
            LeaseOutcome::Yielded
        } else {
            LeaseOutcome::Expired
        }
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
pub(super) fn answer(reply: Result<LeaseCommandResult, Refusal>) -> LeaseDecision {
    LeaseDecision { record: None, deadline: DeadlineChange::Keep, reply, facts: Vec::new() }
}
