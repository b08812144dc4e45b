//! What the rules say about the keys of an acquisition, as they were seen.

use std::num::NonZeroU64;

use fencehold_core::Refusal;
use fencehold_core::lease::{Acquire, Command, Decision, Grant, Outcome, decide};

use super::acquire::Taking;
use super::look::{Ahead, KeySight, Sight};

/// What the rules say about the keys as they were seen.
pub(super) enum Verdict {
    /// This key can be had.
    Take(usize, Box<Decision>),
    /// This hold id has a lease already.
    Has(usize),
    /// Refused, and what is to be put on record with it.
    Refused(usize, Refusal),
    /// Every key is held, or others stand ahead in line.
    InTheWay,
}

impl Taking<'_> {
    fn command(&self, sight: &Sight, at: &KeySight) -> Command {
        let request = &self.request;
        Command::Acquire(Acquire {
            hash: self.hash,
            // A waiter was never granted anything, whatever has been forgotten since. And what this call
            // itself has sent is recognised by its etcd lease.
            hold_age_ms: if self.stand.is_some() { 0 } else { request.hold_id_age_ms },
            owner: request.owner.clone(),
            task: request.task.clone(),
            ttl_ms: request.ttl_ms,
            max_age_ms: request.max_age_ms.and_then(NonZeroU64::new),
            priority: request.priority,
            seen_token: request
                .seen_token
                .filter(|_| sight.keys.first().map(|first| &first.key) == Some(&at.key)),
        })
    }

    pub(super) fn judge(&self, sight: &Sight) -> Verdict {
        let wall_ms = self.core.wall_ms();
        let decided = |at: &KeySight| {
            let standing = at.standing(&sight.mark, wall_ms, 1);
            decide(&standing, &at.record, &self.command(sight, at))
        };
        // The same hold id again gets the lease that it has, or learns how it ended: on whichever key that was.
        if let Some(own) = sight.keys.iter().position(|at| at.record.knows(self.hash)) {
            return match decided(&sight.keys[own]).reply {
                Ok(Outcome::Granted(Grant { resumed: true, .. })) => Verdict::Has(own),
                Err(refusal) => Verdict::Refused(own, refusal),
                // A hold id that is on record is never granted afresh.
                Ok(_) => Verdict::Refused(own, Refusal::HoldIdUsed { token: None, outcome: None }),
            };
        }
        // Where a key's history no longer reaches back so far, it may have ended there: then it gets no other either.
        let age_ms = if self.stand.is_some() { 0 } else { self.request.hold_id_age_ms };
        let forgets = |at: &KeySight| {
            at.record
                .may_have_forgotten(at.standing(&sight.mark, wall_ms, 1).now.store_ms, age_ms)
        };
        if let Some(nth) = sight.keys.iter().position(forgets) {
            return Verdict::Refused(nth, Refusal::HoldIdUsed { token: None, outcome: None });
        }
        for (nth, at) in sight.keys.iter().enumerate() {
            let decision = decided(at);
            match &decision.reply {
                Err(Refusal::Held { .. }) => {}
                Err(refusal) => return Verdict::Refused(nth, refusal.clone()),
                Ok(_) if at.ahead == Ahead::Nobody => return Verdict::Take(nth, Box::new(decision)),
                Ok(_) => {}
            }
        }
        Verdict::InTheWay
    }
}
