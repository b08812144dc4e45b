//! What the rules say about the keys of an acquisition, as they were seen.

use fencehold_contract::lease_records::acquire;
use fencehold_core::Refusal;
use fencehold_core::lease::{Acquire, Grant, LeaseCommand, LeaseCommandResult, LeaseDecision};

use super::acquire::Acquisition;
use super::snapshot::{KeySnapshot, Snapshot};

/// What the rules say about the keys as they were seen.
pub(super) enum AcquireDecision<'a> {
    /// This key can be had.
    Take(&'a KeySnapshot, Box<LeaseDecision>),
    /// This hold id has a lease already.
    Has(&'a KeySnapshot),
    /// Refused, and what is to be put on record with it.
    Refused(&'a KeySnapshot, Refusal),
    /// Every key is held, or others stand ahead in line.
    InTheWay,
}

impl Acquisition<'_> {
    fn command(&self, at: &KeySnapshot) -> LeaseCommand {
        let acquire = acquire(&self.request, &at.key);
        LeaseCommand::Acquire(Acquire { hold_age_ms: self.hold_age_ms(), ..acquire })
    }

    /// A waiter was never granted anything, whatever has been forgotten since. And what this call itself has sent is
    /// recognised by its etcd lease.
    fn hold_age_ms(&self) -> u64 {
        if self.stand.is_some() { 0 } else { self.request.hold_id_age_ms }
    }

    pub(super) fn judge<'s>(&self, snapshot: &'s Snapshot) -> AcquireDecision<'s> {
        let decided = |at: &KeySnapshot| self.call.core.decide(snapshot, at, &self.command(at));
        let used = || Refusal::HoldIdUsed { token: None, outcome: None };
        // The same hold id again gets the lease that it has, or learns how it ended: on whichever key that was.
        if let Some(own) = snapshot.keys.iter().find(|at| at.record.knows(self.hash)) {
            return match decided(own).reply {
                Ok(LeaseCommandResult::Granted(Grant { resumed: true, .. })) => AcquireDecision::Has(own),
                Err(refusal) => AcquireDecision::Refused(own, refusal),
                // A hold id that is on record is never granted afresh.
                Ok(_) => AcquireDecision::Refused(own, used()),
            };
        }
        // Where a key's history no longer reaches back so far, it may have ended there: then it gets no other either.
        let wall_ms = self.call.core.wall_ms();
        let forgets = |at: &&KeySnapshot| {
            let now_ms = at.standing(&snapshot.mark, wall_ms).now.store_ms;
            at.record.may_have_forgotten(now_ms, self.hold_age_ms())
        };
        if let Some(at) = snapshot.keys.iter().find(forgets) {
            return AcquireDecision::Refused(at, used());
        }
        for at in &snapshot.keys {
            let decision = decided(at);
            match &decision.reply {
                Err(Refusal::Held { .. }) => {}
                Err(refusal) => return AcquireDecision::Refused(at, refusal.clone()),
                Ok(_) if at.ahead.is_none() => return AcquireDecision::Take(at, Box::new(decision)),
                Ok(_) => {}
            }
        }
        AcquireDecision::InTheWay
    }
}
