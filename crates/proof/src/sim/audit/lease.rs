//! What was promised of one key.

use std::collections::BTreeMap;

use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{HoldHash, Refusal};

use super::{Audit, DurationRange};
use crate::simulated::ImageState;

/// What the auditor knows of one lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AuditedLease {
    token: u64,
    hold: [u8; 16],
    ttl_ms: u64,
    span: DurationRange,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AuditedKey {
    /// The newest token that was given or consumed.
    newest: u64,
    current: Option<AuditedLease>,
    /// How every hold that had a lease ended.
    ended: BTreeMap<[u8; 16], (u64, LeaseOutcome)>,
}

/// A lease ends at most this long after its deadline, while the store runs.
const ENDS_WITHIN_MS: u64 = 1_000;

impl AuditedKey {
    /// A grant whose caller had gone was given back.
    pub(super) fn abandoned(&mut self, hold: HoldHash) {
        if self.current.is_some_and(|lease| lease.hold == *hold.as_bytes()) {
            self.end(LeaseOutcome::Abandoned);
        }
    }

    pub(super) fn was_forced(&self, token: u64) -> bool {
        let forced = |(ended, how): &(u64, LeaseOutcome)| *ended == token && *how == LeaseOutcome::Revoked;
        self.ended.values().any(forced)
    }

    pub(super) fn restarted(&mut self, stopped_ms: u64, now_ms: u64, found: ImageState) {
        if let Some(lease) = &mut self.current {
            lease.span.restarted(stopped_ms, now_ms, lease.ttl_ms, found);
        }
    }

    fn end(&mut self, how: LeaseOutcome) {
        if let Some(lease) = self.current.take() {
            self.ended.insert(lease.hold, (lease.token, how));
        }
    }

    pub(super) fn granted(
        &mut self,
        now_ms: u64,
        hold: [u8; 16],
        token: u64,
        remaining_ms: u64,
        ttl_ms: u64,
    ) -> Audit {
        if let Some(lease) = self.current
            && now_ms < lease.span.certain_until_ms
        {
            return Err(format!("P1: token {token} was granted while token {} is live", lease.token));
        }
        if token <= self.newest {
            return Err(format!("P2: token {token} was granted after {}", self.newest));
        }
        if let Some((earlier, how)) = self.ended.get(&hold) {
            return Err(format!("P7: a hold that was {how} under token {earlier} was granted token {token}"));
        }
        if self.current.is_some_and(|lease| lease.hold == hold) {
            return Err(format!("P7: a hold that has had its lease was granted token {token}"));
        }
        if remaining_ms != ttl_ms {
            return Err(format!("P4: a grant for {ttl_ms} ms was given {remaining_ms} ms"));
        }
        self.end(LeaseOutcome::Expired);
        self.newest = token;
        let until_ms = now_ms + ttl_ms;
        self.current = Some(AuditedLease { token, hold, ttl_ms, span: DurationRange::until(until_ms) });
        Ok(())
    }

    /// The lease of this hold, if it can be live.
    fn possible(&mut self, now_ms: u64, hold: [u8; 16]) -> Option<&mut AuditedLease> {
        self.current
            .as_mut()
            .filter(|lease| lease.hold == hold && now_ms < lease.span.possible_until_ms)
    }

    pub(super) fn resumed(&mut self, now_ms: u64, hold: [u8; 16], token: u64, remaining_ms: u64) -> Audit {
        match self.possible(now_ms, hold) {
            Some(lease) if lease.token == token && now_ms + remaining_ms <= lease.span.possible_until_ms => {
                lease.span.certain_until_ms = lease.span.certain_until_ms.max(now_ms + remaining_ms);
                Ok(())
            }
            _ => Err(format!(
                "P7: token {token} was answered again with {remaining_ms} ms that it does not have"
            )),
        }
    }

    pub(super) fn refused(
        &mut self,
        now_ms: u64,
        hold: HoldHash,
        refusal: &Refusal,
        waited_since_ms: Option<u64>,
    ) -> Audit {
        match refusal {
            Refusal::Held { token, .. } => {
                let Some(lease) = self.current.filter(|lease| lease.token == token.get()) else {
                    return match waited_since_ms {
                        Some(_) => Ok(()),
                        None => Err(format!("P10: a free key was refused as held under token {token}")),
                    };
                };
                let seen_over_ms =
                    lease.span.possible_until_ms.max(waited_since_ms.unwrap_or(0)) + ENDS_WITHIN_MS;
                if now_ms < lease.span.possible_until_ms
                    || (waited_since_ms.is_some() && now_ms <= seen_over_ms)
                {
                    return Ok(());
                }
                Err(format!(
                    "P4: token {token} is over, and the answer to a request for the key was that it is held"
                ))
            }
            Refusal::HoldIdUsed { outcome: how, .. } => {
                let certain = self.current.is_some_and(|lease| {
                    lease.hold == *hold.as_bytes() && now_ms < lease.span.certain_until_ms
                });
                if certain {
                    return Err("P7: the answer to a live hold was that it has ended".to_owned());
                }
                match (self.ended.get(hold.as_bytes()), how) {
                    (Some((token, known)), Some(how)) if known != how => {
                        Err(format!("P3: token {token} was {known}, and its holder was answered {how}"))
                    }
                    _ => Ok(()),
                }
            }
            other => Err(format!("an acquire was refused: {other}")),
        }
    }

    pub(super) fn renewed(
        &mut self,
        now_ms: u64,
        hold: [u8; 16],
        token: u64,
        answer: Result<u64, &Refusal>,
    ) -> Audit {
        match answer {
            Ok(remaining_ms) => match self.possible(now_ms, hold) {
                Some(lease) if lease.token == token => {
                    if remaining_ms != lease.ttl_ms {
                        return Err(format!("P3: token {token} was renewed for {remaining_ms} ms"));
                    }
                    lease.span = DurationRange::until(now_ms + remaining_ms);
                    Ok(())
                }
                _ => Err(format!("P3: token {token} was renewed although it is over")),
            },
            Err(refusal) => self.lost(now_ms, hold, token, refusal),
        }
    }

    pub(super) fn released(
        &mut self,
        now_ms: u64,
        hold: [u8; 16],
        token: u64,
        answer: Result<&fencehold_core::Token, &Refusal>,
    ) -> Audit {
        match answer {
            Ok(_) if self.possible(now_ms, hold).is_some_and(|lease| lease.token == token) => {
                self.end(LeaseOutcome::Released);
                Ok(())
            }
            // The same release again gets the same answer.
            Ok(_) if self.ended.get(&hold) == Some(&(token, LeaseOutcome::Released)) => Ok(()),
            Ok(_) => Err(format!("P5: token {token} was released although it is over")),
            Err(refusal) => self.lost(now_ms, hold, token, refusal),
        }
    }

    /// The answer to a holder was that its hold is over.
    fn lost(&mut self, now_ms: u64, hold: [u8; 16], token: u64, refusal: &Refusal) -> Audit {
        let live = self
            .current
            .filter(|lease| lease.hold == hold && now_ms < lease.span.certain_until_ms);
        if live.is_some_and(|lease| lease.token == token) {
            return Err(format!("P4: the live holder of token {token} got: {refusal}"));
        }
        match (refusal, self.ended.get(&hold)) {
            (Refusal::Lost { outcome: Some(how), .. }, Some((_, known))) if known != how => {
                Err(format!("P3: token {token} was {known}, and its holder got {how}"))
            }
            (Refusal::Lost { .. }, _) => Ok(()),
            (other, _) => Err(format!("the holder of token {token} got: {other}")),
        }
    }

    pub(super) fn revoked(&mut self, token: u64, consumed: u64) -> Audit {
        if self.current.is_none_or(|lease| lease.token != token) {
            return Err(format!("P9: token {token} was revoked, which no holder has"));
        }
        if consumed <= self.newest {
            return Err(format!(
                "P9: force consumed token {consumed}, which is no larger than {}",
                self.newest
            ));
        }
        self.newest = consumed;
        self.end(LeaseOutcome::Revoked);
        Ok(())
    }

    pub(super) fn seen(&self, now_ms: u64, token: Option<u64>) -> Audit {
        let certain = self.current.filter(|lease| now_ms < lease.span.certain_until_ms);
        let possible = self.current.filter(|lease| now_ms < lease.span.possible_until_ms);
        match token {
            None => match certain {
                Some(lease) => Err(format!("P6: token {} is live, and no holder was seen", lease.token)),
                None => Ok(()),
            },
            Some(token) if possible.is_some_and(|lease| lease.token == token) => Ok(()),
            Some(token) => Err(format!("P10: token {token} was seen, which is over")),
        }
    }
}
