//! What the rules say about the keys of an acquisition, as they were seen.

use std::num::NonZeroU64;

use fencehold_core::Refusal;
use fencehold_core::lease::{Acquire, Grant, LeaseCommand, LeaseCommandResult, LeaseDecision, decide};

use super::acquire::Acquisition;
use super::snapshot::{AheadInQueue, KeySnapshot, Snapshot};

/// What the rules say about the keys as they were seen.
pub(super) enum AcquireDecision {
    /// This key can be had.
    Take(usize, Box<LeaseDecision>),
    /// This hold id has a lease already.
    Has(usize),
    /// Refused, and what is to be put on record with it.
    Refused(usize, Refusal),
    /// Every key is held, or others stand ahead in line.
    InTheWay,
}

impl Acquisition<'_> {
    fn command(&self, snapshot: &Snapshot, at: &KeySnapshot) -> LeaseCommand {
        let request = &self.request;
        LeaseCommand::Acquire(Acquire {
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
                .filter(|_| snapshot.keys.first().map(|first| &first.key) == Some(&at.key)),
        })
    }

    pub(super) fn judge(&self, snapshot: &Snapshot) -> AcquireDecision {
        let wall_ms = self.core.wall_ms();
        let decided = |at: &KeySnapshot| {
            let standing = at.standing(&snapshot.mark, wall_ms, 1);
            decide(&standing, &at.record, &self.command(snapshot, at))
        };
        // The same hold id again gets the lease that it has, or learns how it ended: on whichever key that was.
        if let Some(own) = snapshot.keys.iter().position(|at| at.record.knows(self.hash)) {
            return match decided(&snapshot.keys[own]).reply {
                Ok(LeaseCommandResult::Granted(Grant { resumed: true, .. })) => AcquireDecision::Has(own),
                Err(refusal) => AcquireDecision::Refused(own, refusal),
                // A hold id that is on record is never granted afresh.
                Ok(_) => AcquireDecision::Refused(own, Refusal::HoldIdUsed { token: None, outcome: None }),
            };
        }
        // Where a key's history no longer reaches back so far, it may have ended there: then it gets no other either.
        let age_ms = if self.stand.is_some() { 0 } else { self.request.hold_id_age_ms };
        let forgets = |at: &KeySnapshot| {
            at.record
                .may_have_forgotten(at.standing(&snapshot.mark, wall_ms, 1).now.store_ms, age_ms)
        };
        if let Some(nth) = snapshot.keys.iter().position(forgets) {
            return AcquireDecision::Refused(nth, Refusal::HoldIdUsed { token: None, outcome: None });
        }
        for (nth, at) in snapshot.keys.iter().enumerate() {
            let decision = decided(at);
            match &decision.reply {
                Err(Refusal::Held { .. }) => {}
                Err(refusal) => return AcquireDecision::Refused(nth, refusal.clone()),
                Ok(_) if at.ahead == AheadInQueue::Nobody => {
                    return AcquireDecision::Take(nth, Box::new(decision));
                }
                Ok(_) => {}
            }
        }
        AcquireDecision::InTheWay
    }
}
