//! Changing one key: look, decide with the rules, write what was decided if all is still as it was seen.

use fencehold_contract::StoreError;
use fencehold_core::Key;
use fencehold_core::lease::{LeaseCommand, LeaseDecision, LeaseRecord, decide};

use super::codec::encode_record;
use super::grpc_client::RequestError;
use super::snapshot::{KeySnapshot, ReadSet, Snapshot, changed_at, delete, put};
use super::{EtcdCall, EtcdInner};

impl EtcdCall<'_> {
    /// Looks until there is an answer.
    pub(super) async fn see(&mut self, read_set: &ReadSet) -> Result<Snapshot, StoreError> {
        self.budget.retry(async || self.core.look(read_set).await).await
    }

    /// Changes one key as `step` decides: the record to keep, if any, and the answer, which holds once that is kept. It is
    /// asked again whenever the key has changed since it was seen, and when the outcome of the write is unclear: then the
    /// answer is in the record.
    ///
    /// Returns the last sight too: what was there before the change.
    pub(super) async fn change<T>(
        &mut self,
        key: &Key,
        mut seen: Option<Snapshot>,
        mut step: impl FnMut(&Snapshot, &KeySnapshot, bool) -> (Option<LeaseRecord>, T),
    ) -> Result<(T, KeySnapshot), StoreError> {
        let namespace = &self.namespace.clone();
        let (names, read_set) = (&self.core.names, ReadSet::of(namespace, vec![key.clone()]));
        loop {
            let snapshot = match seen.take() {
                Some(snapshot) => snapshot,
                None => self.see(&read_set).await?,
            };
            let Some(at) = snapshot.keys.first() else { continue };
            let (record, answer) = step(&snapshot, at, self.budget.outcome_unknown);
            let Some(record) = record else { return Ok((answer, at.clone())) };
            let mut compare = at.unchanged(names, namespace);
            compare.push(changed_at(names.mark(), snapshot.mark_revision));
            let bytes = encode_record(&record, snapshot.mark.generation, at.longest_ttl_ms);
            // The key is free from now on.
            let success = vec![
                put(names.record(namespace, key), bytes, 0),
                delete(names.held(namespace, key)),
                delete(names.age(namespace, key)),
            ];
            let later = match self.core.wire.txn(compare, success, read_set.ops(names)).await {
                Ok(response) if response.succeeded => {
                    self.core.measures.facts.count_written(&at.record, &record);
                    return Ok((answer, at.clone()));
                }
                Ok(response) => read_set.read(response),
                Err(fault) => Err(fault),
            };
            match later {
                Ok(snapshot) => seen = Some(snapshot),
                Err(fault) => self.budget.retry_or_fail(fault).await?,
            }
        }
    }

    /// Puts on record that a hold has run out, if it has, for later readers. Nothing is lost if that fails.
    pub(super) async fn note_expiry(&mut self, snapshot: &Snapshot, at: &KeySnapshot) {
        if at.record.hold.is_none() || at.live().is_some() {
            return;
        }
        let (core, seen) = (self.core, Snapshot { keys: vec![at.clone()], ..snapshot.clone() });
        let noted = self.change(&at.key, Some(seen), |snapshot, at, _| {
            (core.decide(snapshot, at, &LeaseCommand::Expire).record, ())
        });
        let _ = noted.await;
    }
}

impl EtcdInner {
    /// Looks at keys, in as few requests as etcd allows.
    pub(super) async fn look(&self, read_set: &ReadSet) -> Result<Snapshot, RequestError> {
        read_set.read(self.wire.txn(Vec::new(), read_set.ops(&self.names), Vec::new()).await?)
    }

    /// What the rules say about a key as it was seen.
    pub(super) fn decide(
        &self,
        snapshot: &Snapshot,
        at: &KeySnapshot,
        command: &LeaseCommand,
    ) -> LeaseDecision {
        decide(&at.standing(&snapshot.mark, self.wall_ms()), &at.record, command)
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
