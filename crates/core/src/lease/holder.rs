//! What a holder can do about its own lease: renew it and give it back; and who is a holder at all.

use crate::error::Refusal;
use crate::event::{BlockedAction, EventData};
use crate::hold::HoldHash;
use crate::lease::command::{LeaseCommandResult, LeaseRenewal};
use crate::lease::decide::{DeadlineChange, HoldState, LeaseCase, LeaseDecision, answer, lost};
use crate::lease::record::{Ending, Hold, LeaseOutcome};
use crate::token::Token;

impl LeaseCase<'_> {
    pub(super) fn renew(&self, hash: HoldHash, token: Token) -> LeaseDecision {
        let (hold, remaining_ms) = match self.holder(hash, token, BlockedAction::Renew) {
            Ok(found) => found,
            Err(refused) => return *refused,
        };
        let lasts_ms = self.renewed_ms(hold, remaining_ms);
        let now_ms = self.standing.now.store_ms;
        let renewal = LeaseRenewal {
            token,
            remaining_ms: lasts_ms,
            yield_request: hold.yield_request.as_ref().map(|asked| asked.seen_at(now_ms)),
        };
        LeaseDecision {
            deadline: DeadlineChange::LastsMs(lasts_ms),
            ..answer(Ok(LeaseCommandResult::Renewed(renewal)))
        }
    }

    /// How long a renewal lasts: a ttl, less what `max_age` or a notice takes away; never less than what was
    /// acknowledged before.
    fn renewed_ms(&self, hold: &Hold, remaining_ms: u64) -> u64 {
        let now_ms = self.standing.now.store_ms;
        let mut lasts_ms = hold.ttl_ms;
        if let Some(max_age_ms) = hold.max_age_ms {
            let ends_at_ms = hold.since.store_ms.saturating_add(max_age_ms.get());
            lasts_ms = lasts_ms.min(ends_at_ms.saturating_sub(now_ms));
        }
        if let Some(notice) = &hold.yield_request {
            lasts_ms = lasts_ms.min(notice.yield_at_ms.saturating_sub(now_ms));
        }
        lasts_ms.max(remaining_ms)
    }

    pub(super) fn release(&self, hash: HoldHash, token: Token) -> LeaseDecision {
        if let Some(ending) = self.record.ending_of(hash)
            && ending.token == token
            && ending.was_given_back()
        {
            // The same request again: the same answer.
            return answer(Ok(LeaseCommandResult::Released { token }));
        }
        let released = LeaseCommandResult::Released { token };
        match self.holder(hash, token, BlockedAction::Release) {
            Ok((hold, _)) => {
                // Given back because a contender asked for it: that is no end of its own accord.
                let asked = hold.yield_request.is_some();
                let how = if asked { LeaseOutcome::Yielded } else { LeaseOutcome::Released };
                self.ended(how, self.standing.now, None, None, released)
            }
            Err(refused) => *refused,
        }
    }

    pub(super) fn abandon(&self, hash: HoldHash) -> LeaseDecision {
        let nothing = LeaseCommandResult::Nothing;
        match &self.record.hold {
            Some(hold) if hold.hash == hash && self.standing.term.is_live() => {
                self.ended(LeaseOutcome::Abandoned, self.standing.now, None, None, nothing)
            }
            _ => answer(Ok(nothing)),
        }
    }

    /// The live hold that this id and token speak for, or why they speak for none.
    fn holder(
        &self,
        hash: HoldHash,
        token: Token,
        attempted: BlockedAction,
    ) -> Result<(&Hold, u64), Box<LeaseDecision>> {
        if let Some(alarm) = self.rewound(token) {
            return Err(Box::new(alarm));
        }
        let hold = self.record.hold.as_ref();
        if let Some(hold) = hold.filter(|hold| hold.hash == hash && self.record.counter == token) {
            return match self.standing.term {
                HoldState::Live { remaining_ms } => Ok((hold, remaining_ms)),
                HoldState::Over { .. } | HoldState::Free => {
                    let noted = self.run_out();
                    let ending = noted.record.as_ref().and_then(|record| record.ending_of(hash)).cloned();
                    Err(Box::new(self.refuse_stale(noted, token, ending.as_ref(), attempted)))
                }
            };
        }
        let ending = self.record.ending_of(hash).filter(|ending| ending.token == token);
        let refused = answer(Err(Refusal::WrongHoldId { token }));
        // Any other token than the newest is of an earlier hold, also where the key was collected since.
        Err(Box::new(if ending.is_some() || token != self.record.counter {
            self.refuse_stale(refused, token, ending, attempted)
        } else {
            refused
        }))
    }

    fn refuse_stale(
        &self,
        mut refused: LeaseDecision,
        token: Token,
        ending: Option<&Ending>,
        attempted: BlockedAction,
    ) -> LeaseDecision {
        let current = self.record.counter.max(token);
        refused.reply = Err(lost(token, ending, current));
        refused.facts.push(EventData::StaleWriteBlocked {
            token,
            current_token: current,
            action: attempted,
            outcome: ending.map(|ending| ending.outcome),
        });
        refused
    }
}
