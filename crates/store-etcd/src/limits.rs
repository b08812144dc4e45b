//! What a namespace may have: how many lease keys, and the longest ttl.
//!
//! Limits are read with the keys that are wanted, and a grant finds them unchanged. Keys are counted only where a limit was set and
//! the key is new. A grant of a new key then also writes the name of the newest key, which the next one must find as it
//! was when it counted: so the count is exact, however many ask at the same time.

use fencehold_contract::quota::full_of_kept_keys;
use fencehold_contract::{Quota, QuotaRequest, QuotaUsage, QuotaView, StoreError};

use super::acquire::Acquisition;
use super::codec::encode_limits;
use super::grpc_client::RequestError;
use super::messages::RangeResponse;
use super::snapshot::{KeySnapshot, Snapshot, changed_at, count, get, limits_of, put};
use super::{EtcdCall, EtcdInner, STORE, TTL_MS_MIN};

impl EtcdCall<'_> {
    /// Sets limits, if that is asked for, and tells those of a namespace with what it has.
    pub(super) async fn limits(&mut self, request: &QuotaRequest) -> Result<QuotaView, StoreError> {
        if let Some(set) = &request.quota {
            set.check_of_leases(STORE, TTL_MS_MIN)?;
            let name = self.core.names.limits((!request.all_namespaces).then_some(&self.namespace));
            while !self.budget.retry(async || self.core.set_limits(&name, set).await).await? {}
        }
        let mut ops = [Some(&self.namespace), None]
            .map(|whose| get(self.core.names.limits(whose)))
            .to_vec();
        ops.push(count(self.core.names.records(&self.namespace, "")));
        let read = async || {
            let mut read = self.core.wire.read(ops.clone()).await?;
            let key_count = read.pop().map_or(0, |range| range.total());
            let set = read.into_iter().map(|range| Ok(limits_of(range.into_first())?.0));
            let limits = set.collect::<Result<Vec<_>, RequestError>>()?;
            let quota = limits.into_iter().fold(Quota::default(), Quota::or);
            let usage = QuotaUsage { key_count, ..QuotaUsage::default() };
            Ok::<_, RequestError>(QuotaView { quota: quota.or(Quota::USUAL), usage })
        };
        self.budget.retry(read).await
    }
}

impl EtcdInner {
    /// Sets what is set, and leaves the rest. False: another caller came first.
    async fn set_limits(&self, name: &[u8], set: &Quota) -> Result<bool, RequestError> {
        let before = self.wire.read(vec![get(name.to_vec())]).await?;
        let (before, revision) = limits_of(before.into_iter().find_map(RangeResponse::into_first))?;
        let compare = vec![changed_at(name.to_vec(), revision)];
        self.wire
            .write(compare, vec![put(name.to_vec(), encode_limits(set.or(before)), 0)])
            .await
    }
}

impl Acquisition<'_> {
    /// Whether a lease in the namespace may have this ttl.
    pub(super) fn check_ttl(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        let checked = snapshot.limits.check_ttl(&self.call.namespace, self.request.ttl_ms);
        checked.map_err(|bad| self.unknown_if_in_doubt(bad.into()))
    }

    /// Whether the namespace has room for one of the keys that were seen. Some: it is a new one, their number is limited, and this
    /// revision wrote the newest.
    pub(super) async fn check_keys(
        &mut self,
        snapshot: &Snapshot,
        at: &KeySnapshot,
    ) -> Result<Option<i64>, StoreError> {
        let is_new = at.record_revision == 0;
        let Some(limit) = snapshot.limits.max_keys.filter(|_| is_new) else { return Ok(None) };
        let names = &self.call.core.names;
        let ops =
            vec![get(names.newest_key(&self.call.namespace)), count(names.records(&self.call.namespace, ""))];
        let mut read = self.call.read(ops).await?.into_iter();
        let newest = read.next().and_then(RangeResponse::into_first).map_or(0, |kv| kv.mod_revision);
        let keys = read.next().map_or(0, |range| range.total());
        if keys >= limit {
            return Err(self.unknown_if_in_doubt(full_of_kept_keys(&self.call.namespace, limit)));
        }
        Ok(Some(newest))
    }

    /// What to say where nothing more is tried. A grant that was sent before may still come.
    pub(super) fn unknown_if_in_doubt(&self, error: StoreError) -> StoreError {
        if self.is_in_doubt() { self.call.budget.unanswered(&error.to_string()) } else { error }
    }
}
