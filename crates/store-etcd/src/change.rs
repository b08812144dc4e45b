//! Changing one key: look, decide with the rules, write what was decided if all is still as it was seen.

use fencehold_contract::StoreError;
use fencehold_core::lease::{LeaseCommand, LeaseDecision, LeaseRecord, decide};
use fencehold_core::{Key, Namespace};
use fencehold_net::CallBudget;

use super::EtcdInner;
use super::codec::encode_record;
use super::grpc_client::RequestError;
use super::messages::{RequestOp, TxnRequest};
use super::snapshot::{KeySnapshot, ReadSet, Snapshot, changed_at, delete, put};

/// What follows from a sight.
pub(super) enum NextStep<T> {
    /// There is nothing to write.
    Answer(T),
    /// This record is to be kept; then the answer holds.
    Keep(Box<LeaseRecord>, T),
}

impl<T> NextStep<T> {
    /// Keeps what was decided, if it changes anything.
    pub(super) fn after(decision: LeaseDecision, answer: T) -> Self {
        match decision.record {
            Some(record) => NextStep::Keep(Box::new(record), answer),
            None => NextStep::Answer(answer),
        }
    }
}

impl EtcdInner {
    /// Looks at keys, in as few requests as etcd allows.
    pub(super) async fn look(&self, read_set: &ReadSet) -> Result<Snapshot, RequestError> {
        let request = TxnRequest { success: read_set.ops(&self.names), ..TxnRequest::default() };
        read_set.read(self.wire.txn(request).await?)
    }

    /// Looks until there is an answer.
    pub(super) async fn see(
        &self,
        budget: &mut CallBudget,
        read_set: &ReadSet,
    ) -> Result<Snapshot, StoreError> {
        loop {
            match self.look(read_set).await {
                Ok(snapshot) => return Ok(snapshot),
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
        seen: Option<Snapshot>,
        mut step: impl FnMut(&Snapshot, &KeySnapshot, bool) -> NextStep<T>,
    ) -> Result<(T, KeySnapshot), StoreError> {
        let read_set = ReadSet::at(namespace, key);
        let mut seen = seen;
        loop {
            let snapshot = match seen.take() {
                Some(snapshot) => snapshot,
                None => self.see(budget, &read_set).await?,
            };
            let Some(at) = snapshot.keys.first() else { continue };
            let (record, answer) = match step(&snapshot, at, budget.outcome_unknown) {
                NextStep::Answer(answer) => return Ok((answer, at.clone())),
                NextStep::Keep(record, answer) => (record, answer),
            };
            let mut compare = at.unchanged(&self.names, namespace);
            compare.push(changed_at(self.names.mark(), snapshot.mark_revision));
            let success = self.kept(namespace, &snapshot, at, &record);
            let request = TxnRequest { compare, success, failure: read_set.ops(&self.names) };
            match self.wire.txn(request).await {
                Ok(response) if response.succeeded => return Ok((answer, at.clone())),
                Ok(response) => match read_set.read(response) {
                    Ok(snapshot) => seen = Some(snapshot),
                    Err(fault) => budget.retry_or_fail(fault).await?,
                },
                Err(fault) => budget.retry_or_fail(fault).await?,
            }
        }
    }

    /// What writes a record of a key that is free from now on.
    fn kept(
        &self,
        namespace: &Namespace,
        snapshot: &Snapshot,
        at: &KeySnapshot,
        record: &LeaseRecord,
    ) -> Vec<RequestOp> {
        let bytes = encode_record(record, snapshot.mark.generation, at.longest_ttl_ms);
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
        snapshot: &Snapshot,
        nth: usize,
    ) {
        let Some(at) = snapshot
            .keys
            .get(nth)
            .filter(|at| at.record.hold.is_some() && at.live().is_none())
        else {
            return;
        };
        let seen = Snapshot { keys: vec![at.clone()], ..snapshot.clone() };
        let noted = self.change(budget, namespace, &at.key, Some(seen), |snapshot, at, _| {
            let standing = at.standing(&snapshot.mark, self.wall_ms(), 1);
            NextStep::after(decide(&standing, &at.record, &LeaseCommand::Expire), ())
        });
        let _ = noted.await;
    }

    /// Ends the etcd leases of a hold that is over. They would end by themselves; it is only tidier.
    pub(super) async fn tidy(&self, at: &KeySnapshot) {
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
