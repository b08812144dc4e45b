//! What others can do about a lease: ask its holder to yield, end it by force, move every token on.

use crate::error::Refusal;
use crate::event::EventData;
use crate::key::{Owner, Reason};
use crate::lease::command::{LeaseCommandResult, PreemptRequest, Revoked};
use crate::lease::decide::{HoldState, LeaseCase, LeaseDecision, answer, lost};
use crate::lease::record::LeaseOutcome;
use crate::token::Token;

impl LeaseCase<'_> {
    pub(super) fn revoke(&self, by: &Owner, reason: &Reason, only_token: Option<Token>) -> LeaseDecision {
        if let Some(alarm) = only_token.and_then(|shown| self.rewound(shown)) {
            return alarm;
        }
        let Some(hold) = &self.record.hold else { return answer(Err(Refusal::NotHeld)) };
        let token = self.record.counter;
        if let Some(only) = only_token.filter(|only| *only != token) {
            let ending = self.record.endings().iter().find(|ending| ending.token == only);
            return answer(Err(lost(only, ending, token)));
        }
        // A hold that has run out unnoticed is ended by force all the same: fences must refuse its holder from now on.
        let Some(consumed_token) = token.lifted(1) else { return answer(Err(Refusal::TokensExhausted)) };
        let (owner, task) = (hold.owner.clone(), hold.task.clone());
        let revoked = LeaseCommandResult::Revoked(Revoked { token, consumed_token, owner, task });
        let (by, reason) = (Some(by.clone()), Some(reason.clone()));
        let mut decision = self.ended(LeaseOutcome::Revoked, self.standing.now, by, reason, revoked);
        if let Some(record) = &mut decision.record {
            record.counter = consumed_token;
        }
        decision
    }

    pub(super) fn preempt(&self, ask: &PreemptRequest) -> LeaseDecision {
        let (Some(hold), HoldState::Live { remaining_ms }) = (&self.record.hold, self.standing.term) else {
            return answer(Err(Refusal::NotHeld));
        };
        if ask.priority <= hold.priority {
            return answer(Err(Refusal::PriorityTooLow { priority: hold.priority }));
        }
        let now_ms = self.standing.now.store_ms;
        if let Some(notice) = &hold.yield_request
            && notice.priority >= ask.priority
        {
            // A contender of that rank has asked already: its time stands.
            let free_in_ms = notice.yield_at_ms.saturating_sub(now_ms).max(remaining_ms);
            return answer(Ok(LeaseCommandResult::Asked { free_in_ms }));
        }
        let pending = ask.pending(now_ms, hold.yield_request.as_deref());
        let facts = vec![pending.requested(self.record.counter, now_ms)];
        let free_in_ms = pending.yield_at_ms.saturating_sub(now_ms).max(remaining_ms);
        let mut record = self.record.clone();
        if let Some(hold) = &mut record.hold {
            hold.yield_request = Some(Box::new(pending));
        }
        let asked = Ok(LeaseCommandResult::Asked { free_in_ms });
        LeaseDecision { record: Some(record), facts, ..answer(asked) }
    }

    pub(super) fn withdraw(&self) -> LeaseDecision {
        let asked = self.record.hold.as_ref().is_some_and(|hold| hold.yield_request.is_some());
        // Once its time is up, the notice is why: that is not taken back.
        if !asked || !self.standing.term.is_live() {
            return answer(Ok(LeaseCommandResult::Nothing));
        }
        let mut record = self.record.clone();
        if let Some(hold) = &mut record.hold {
            hold.yield_request = None;
        }
        LeaseDecision {
            record: Some(record),
            facts: vec![EventData::YieldWithdrawn { token: self.record.counter }],
            ..answer(Ok(LeaseCommandResult::Nothing))
        }
    }

    pub(super) fn advance(&self, lift: u64, by: &Owner) -> LeaseDecision {
        let Some(lifted) = self.record.counter.max(self.standing.floor).advanced(lift) else {
            return answer(Err(Refusal::TokensExhausted));
        };
        let (how, nothing) = (LeaseOutcome::Advanced, LeaseCommandResult::Nothing);
        let mut decision = self.ended(how, self.standing.now, Some(by.clone()), None, nothing);
        let record = decision.record.get_or_insert_with(|| self.record.clone());
        record.counter = lifted;
        // What ended in the time that was lost is not in the history: every hold id from before is treated as ended.
        record.history.get_or_insert_default().forgotten_at_ms = Some(self.standing.now.store_ms);
        decision
    }
}
