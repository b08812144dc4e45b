//! What the owners saw, and whether there is an order that explains it.
//!
//! A history is linearizable if every call can be given a moment between its sending and its answer, so that the answers
//! follow from the calls in that order. On one key the tokens give that order away: all that was said of a token happened
//! after its grant and before the next one. So the earliest possible moments decide.
//!
//! Releases are left out: a release that is sent again gets the same answer, and an earlier sending may be the one that was
//! carried out.

use std::collections::BTreeMap;

use fencehold_contract::StoreError;
use fencehold_core::Refusal;

use crate::simulated::{MachineRequest, MachineResponse};

/// From when to when a call was under way, in true time.
#[derive(Clone, Copy, Debug)]
struct SeenCall {
    sent_ms: u64,
    answered_ms: u64,
}

/// All that was seen of one token.
#[derive(Clone, Debug, Default)]
struct SeenToken {
    grant: Option<SeenCall>,
    seen: Vec<SeenCall>,
}

#[derive(Debug, Default)]
pub(super) struct SimHistory {
    keys: BTreeMap<String, BTreeMap<u64, SeenToken>>,
}

impl SimHistory {
    /// Notes what an owner was answered.
    pub(super) fn note(
        &mut self,
        sent_ms: u64,
        answered_ms: u64,
        question: &MachineRequest,
        answer: &Result<MachineResponse, StoreError>,
    ) {
        let call = SeenCall { sent_ms, answered_ms };
        match (question, answer) {
            (MachineRequest::Acquire(_), Ok(MachineResponse::Acquired(acquired))) => {
                let token_history = self.token_history(acquired.key.as_str(), acquired.grant.token.get());
                if acquired.grant.resumed {
                    token_history.seen.push(call);
                } else {
                    token_history.grant.get_or_insert(call);
                }
            }
            // One who waited learns who held the key when its time was up, which may be a moment too late to be true.
            (
                MachineRequest::Acquire(request),
                Err(StoreError::Refused { key, refusal: Refusal::Held { token, .. } }),
            ) if request.wait_ms == 0 => {
                self.token_history(key.as_str(), token.get()).seen.push(call);
            }
            (MachineRequest::Renew(holds), Ok(MachineResponse::Renewed(renewed))) => {
                for (hold, answer) in holds.iter().zip(&renewed.results) {
                    if answer.is_ok() {
                        self.token_history(hold.key.as_str(), hold.token.get()).seen.push(call);
                    }
                }
            }
            // Which of its sendings was answered cannot be known, but the claim was live when it was.
            (MachineRequest::Claim(_), Ok(MachineResponse::Claimed(claimed))) => {
                for job in &claimed.jobs {
                    self.token_history(&format!("job/{}", job.id), job.token.get()).seen.push(call);
                }
            }
            (MachineRequest::RenewClaims(attempts), Ok(MachineResponse::RenewedClaims(renewed))) => {
                for (attempt, answer) in attempts.iter().zip(&renewed.results) {
                    if answer.is_ok() {
                        self.token_history(&format!("job/{}", attempt.job_id), attempt.token.get())
                            .seen
                            .push(call);
                    }
                }
            }
            (MachineRequest::Get(key), Ok(MachineResponse::Lease(Some(view)))) if view.holder.is_some() => {
                self.token_history(key.as_str(), view.token.get()).seen.push(call);
            }
            _ => {}
        }
    }

    fn token_history(&mut self, key: &str, token: u64) -> &mut SeenToken {
        self.keys.entry(key.to_owned()).or_default().entry(token).or_default()
    }

    /// Whether an order explains it all. An error names the first call that no order explains.
    pub(super) fn is_linearizable(&self) -> Result<(), String> {
        for (key, reigns) in &self.keys {
            let mut from_ms = 0;
            for (token, token_history) in reigns {
                let at = |call: &SeenCall, from_ms: u64| {
                    let moment_ms = from_ms.max(call.sent_ms);
                    if moment_ms <= call.answered_ms {
                        return Ok(moment_ms);
                    }
                    let SeenCall { sent_ms, answered_ms } = call;
                    Err(format!(
                        "not linearizable: what was said of {key} under token {token} between {sent_ms} ms and \
                         {answered_ms} ms can only have happened after {from_ms} ms"
                    ))
                };
                if let Some(grant) = &token_history.grant {
                    from_ms = at(grant, from_ms)?;
                }
                let mut last_ms = from_ms;
                for seen in &token_history.seen {
                    last_ms = last_ms.max(at(seen, from_ms)?);
                }
                from_ms = last_ms;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(sent_ms: u64, answered_ms: u64) -> SeenCall {
        SeenCall { sent_ms, answered_ms }
    }

    fn history(reigns: &[(u64, SeenToken)]) -> SimHistory {
        SimHistory { keys: BTreeMap::from([("k".to_owned(), reigns.iter().cloned().collect())]) }
    }

    #[test]
    fn calls_that_overlap_may_have_happened_in_either_order() {
        let first = SeenToken { grant: Some(call(0, 10)), seen: vec![call(5, 40)] };
        let second = SeenToken { grant: Some(call(20, 50)), ..SeenToken::default() };
        assert_eq!(history(&[(1, first), (2, second)]).is_linearizable(), Ok(()));
    }

    #[test]
    fn an_old_token_that_is_seen_after_a_newer_grant_was_answered_is_found() {
        let first = SeenToken { grant: Some(call(0, 10)), seen: vec![call(60, 70)] };
        let second = SeenToken { grant: Some(call(20, 50)), ..SeenToken::default() };
        assert!(history(&[(1, first), (2, second)]).is_linearizable().is_err());
    }

    #[test]
    fn a_smaller_token_that_is_granted_later_is_found() {
        let first = SeenToken { grant: Some(call(60, 70)), ..SeenToken::default() };
        let second = SeenToken { grant: Some(call(20, 50)), ..SeenToken::default() };
        assert!(history(&[(1, first), (2, second)]).is_linearizable().is_err());
    }
}
