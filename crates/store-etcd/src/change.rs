//! Changing one key: look, decide with the rules, write what was decided if all is still as it was seen.

use fencehold_contract::StoreError;
use fencehold_core::lease::{Command, Decision, Record, decide};
use fencehold_core::{Key, Namespace};
use fencehold_net::CallBudget;

use super::Core;
use super::codec::encode_record;
use super::look::{Gaze, KeySight, Sight, changed_at, delete, put};
use super::messages::{RequestOp, TxnRequest};
use super::wire::Fault;

/// What follows from a sight.
pub(super) enum Step<T> {
    /// There is nothing to write.
    Answer(T),
    /// This record is to be kept; then the answer holds.
    Keep(Box<Record>, T),
}

impl<T> Step<T> {
    /// Keeps what was decided, if it changes anything.
    pub(super) fn after(decision: Decision, answer: T) -> Self {
        match decision.record {
            Some(record) => Step::Keep(Box::new(record), answer),
            None => Step::Answer(answer),
        }
    }
}

impl Core {
    /// Looks at keys, in as few requests as etcd allows.
    pub(super) async fn look(&self, gaze: &Gaze) -> Result<Sight, Fault> {
        let request = TxnRequest { success: gaze.ops(&self.names), ..TxnRequest::default() };
        gaze.read(self.wire.txn(request).await?)
    }

    /// Looks until there is an answer.
    pub(super) async fn see(&self, budget: &mut CallBudget, gaze: &Gaze) -> Result<Sight, StoreError> {
        loop {
            match self.look(gaze).await {
                Ok(sight) => return Ok(sight),
                Err(fault) => budget.retry_or_fail(fault).await?,
            }
        }
    }

    /// Changes one key as `step` decides, which is asked again whenever the key has changed since it was seen, and when
    /// the outcome of the write is unclear: then the answer is in the record.
    ///
    /// Returns the last sight too: what was there before the change.
    pub(super) async fn change<T>(
        &self,
        budget: &mut CallBudget,
        namespace: &Namespace,
        key: &Key,
        seen: Option<Sight>,
        mut step: impl FnMut(&Sight, &KeySight, bool) -> Step<T>,
    ) -> Result<(T, KeySight), StoreError> {
        let gaze = Gaze::at(namespace, key);
        let mut seen = seen;
        loop {
            let sight = match seen.take() {
                Some(sight) => sight,
                None => self.see(budget, &gaze).await?,
            };
            let Some(at) = sight.keys.first() else { continue };
            let (record, answer) = match step(&sight, at, budget.outcome_unknown) {
                Step::Answer(answer) => return Ok((answer, at.clone())),
                Step::Keep(record, answer) => (record, answer),
            };
            let mut compare = at.unchanged(&self.names, namespace);
            compare.push(changed_at(self.names.mark(), sight.mark_revision));
            let success = self.kept(namespace, &sight, at, &record);
            let request = TxnRequest { compare, success, failure: gaze.ops(&self.names) };
            match self.wire.txn(request).await {
                Ok(response) if response.succeeded => return Ok((answer, at.clone())),
                Ok(response) => match gaze.read(response) {
                    Ok(sight) => seen = Some(sight),
                    Err(fault) => budget.retry_or_fail(fault).await?,
                },
                Err(fault) => budget.retry_or_fail(fault).await?,
            }
        }
    }

    /// What writes a record of a key that is free from now on.
    fn kept(&self, namespace: &Namespace, sight: &Sight, at: &KeySight, record: &Record) -> Vec<RequestOp> {
        let bytes = encode_record(record, sight.mark.generation, at.longest_ttl_ms);
        vec![
            put(self.names.record(namespace, &at.key), bytes, 0),
            delete(self.names.held(namespace, &at.key)),
            delete(self.names.age(namespace, &at.key)),
        ]
    }

    /// Puts on record that a hold has run out, if it has, for later readers. Nothing is lost if that fails.
    pub(super) async fn note_expiry(
        &self,
        budget: &mut CallBudget,
        namespace: &Namespace,
        sight: &Sight,
        nth: usize,
    ) {
        let Some(at) = sight.keys.get(nth).filter(|at| at.record.hold.is_some() && at.live().is_none())
        else {
            return;
        };
        let seen = Sight { keys: vec![at.clone()], ..sight.clone() };
        let noted = self.change(budget, namespace, &at.key, Some(seen), |sight, at, _| {
            let standing = at.standing(&sight.mark, self.wall_ms(), 1);
            Step::after(decide(&standing, &at.record, &Command::Expire), ())
        });
        let _ = noted.await;
    }

    /// Ends the etcd leases of a hold that is over. They would end by themselves; it is only tidier.
    pub(super) async fn tidy(&self, at: &KeySight) {
        if let Some(held) = at.held {
            self.end_leases(held.lease, at.age.map(|age| age.lease)).await;
        }
    }

    pub(super) async fn end_leases(&self, lease: i64, age_lease: Option<i64>) {
        for lease in [Some(lease), age_lease].into_iter().flatten() {
            let _ = self.wire.lease_revoke(lease).await;
        }
    }
}
