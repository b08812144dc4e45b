//! After a restore or a lossy failover: every lease is ended and every counter lifted, by one write to the mark.
//!
//! Records are lifted when they are next looked at (see [`look`](super::snapshot)), so it makes no difference how many there
//! are. The store is closed by a key on an etcd lease of the longest ttl there was: etcd's clock opens it again. Then each
//! namespace in which something was ever granted is let open by itself: it gets a key on an etcd lease of its own longest
//! ttl, and one that says that this counts, on the etcd lease of the key that closes the store. Without them, or for a
//! program that does not know them, it opens with the store.

use std::collections::BTreeMap;

use fencehold_contract::{AdvancedStore, ClosedNamespace, StoreError};
use fencehold_core::lease::{LeaseOutcome, LeaseRecord};
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{BadInput, Namespace, Owner, Refusal, Timestamp};

use super::EtcdCall;
use super::codec::{StoreMark, encode};
use super::grpc_client::RequestError;
use super::key_names::KeyRange;
use super::messages::{RangeRequest, RequestOp};
use super::snapshot::{ReadSet, changed_at, delete, kept_by, longest_ttl_ms, put};

/// On how many etcd leases namespaces are closed at most: where there are more ttls, some are rounded up.
const LEASES_MAX: usize = 64;
/// How many namespaces one write closes: etcd allows 128 operations in a transaction.
const NAMESPACES_PER_WRITE: usize = 60;
/// How many records are read at once.
const RECORDS_AT_ONCE: i64 = 500;

impl EtcdCall<'_> {
    pub(super) async fn advance(&mut self, by: &Owner, lift: u64) -> Result<AdvancedStore, StoreError> {
        if lift == 0 {
            return Err(BadInput::new("increment", "must be more than 0").into());
        }
        let read_set = ReadSet::of(&self.namespace, Vec::new());
        loop {
            let snapshot = self.see(&read_set).await?;
            if self.budget.outcome_unknown {
                // Carried out or not: once more would end what was granted since.
                let why = "no answer came; look at the tokens before you try again";
                return Err(self.budget.unanswered(why));
            }
            let census = self.census(&snapshot.mark, lift).await?;
            let now_ms = self.core.wall_ms();
            let mark = StoreMark {
                floor: census.floor,
                generation: snapshot.mark.generation + 1,
                advanced_by: Some(by.clone()),
                advanced_at: Timestamp { store_ms: now_ms, wall_ms: now_ms },
                ..snapshot.mark.clone()
            };
            let closed_for_ms = mark.longest_ttl_ms;
            let mut success = vec![put(self.core.names.mark(), encode(&mark), 0)];
            let mut closed_by = None;
            if closed_for_ms > 0 {
                let lease = self.unused_lease(closed_for_ms).await?;
                success.push(self.closes(lease));
                closed_by = Some(lease);
            }
            let compare = vec![changed_at(self.core.names.mark(), snapshot.mark_revision)];
            match self.core.wire.write(compare, success).await {
                Ok(true) => {
                    let HolderCounts { keys, ended, .. } = census;
                    self.core.measures.facts.lease_ended(LeaseOutcome::Advanced, ended);
                    let mut namespaces = Vec::new();
                    if let Some(lease) = closed_by {
                        let apart = self.close_apart(&mark, lease).await;
                        // It is done, whatever becomes of this: at worst all namespaces open together.
                        namespaces = apart.unwrap_or_else(|error| {
                            tracing::warn!(%error, "all namespaces are closed for the longest ttl of any");
                            Vec::new()
                        });
                    }
                    return Ok(AdvancedStore {
                        key_count: keys,
                        ended_count: ended,
                        closed_for_ms,
                        namespaces,
                    });
                }
                Ok(false) => {}
                Err(fault) => self.budget.retry_or_fail(fault).await?,
            }
        }
    }

    fn closes(&self, lease: i64) -> RequestOp {
        put(self.core.names.closed(), b"store advance".to_vec(), lease)
    }

    /// An etcd lease. One that is not used does no harm, so it is asked for again where no answer came.
    async fn unused_lease(&mut self, ttl_ms: u64) -> Result<i64, StoreError> {
        let grant = async || match self.core.wire.lease_grant(ttl_ms).await {
            Err(RequestError::Unclear(why)) => Err(RequestError::Unreached(why)),
            granted => granted,
        };
        self.budget.retry(grant).await
    }

    /// Lets each namespace open after the longest ttl that was ever granted in it. `closed_by`: the etcd lease by which the
    /// store is closed. Since that was written nothing was granted, so all that was is on record, and each etcd lease
    /// that is asked for now lasts until after its holders.
    async fn close_apart(
        &mut self,
        mark: &StoreMark,
        closed_by: i64,
    ) -> Result<Vec<ClosedNamespace>, StoreError> {
        let longest = self.longest_ttls(mark).await?;
        let mut lasts: Vec<u64> = longest.values().map(|ms| ms.div_ceil(1_000) * 1_000).collect();
        lasts.sort_unstable_by(|a, b| b.cmp(a));
        lasts.dedup();
        let mut leases = BTreeMap::new();
        for same in lasts.chunks(lasts.len().div_ceil(LEASES_MAX).max(1)) {
            let Some(longest_ms) = same.first() else { continue };
            let lease = self.unused_lease(*longest_ms).await?;
            leases.extend(same.iter().map(|ms| (*ms, (*longest_ms, lease))));
        }
        // The store's own key is written once more: what was granted while the first etcd lease was asked for counts too.
        let for_all = self.unused_lease(mark.longest_ttl_ms).await?;
        let mut guard = closed_by;
        let mut closed = Vec::with_capacity(longest.len());
        let longest: Vec<_> = longest.into_iter().collect();
        for some in longest.chunks(NAMESPACES_PER_WRITE) {
            let mut success = vec![self.closes(for_all)];
            for (namespace, own_ms) in some {
                let Some((closed_for_ms, lease)) = leases.get(&(own_ms.div_ceil(1_000) * 1_000)) else {
                    continue;
                };
                success.push(put(self.core.names.closed_apart(namespace), Vec::new(), for_all));
                success.push(put(self.core.names.closed_namespace(namespace), Vec::new(), *lease));
                closed.push(ClosedNamespace { namespace: namespace.clone(), closed_for_ms: *closed_for_ms });
            }
            let compare = vec![kept_by(self.core.names.closed(), guard)];
            match self.core.wire.write(compare, success).await {
                Ok(true) => guard = for_all,
                Ok(false) => {
                    return Err(self.budget.unanswered("it was opened, or advanced once more, meanwhile"));
                }
                // Not tried again: without it they open with the store.
                Err(fault) => return Err(self.budget.unanswered(&format!("{fault:?}"))),
            }
        }
        self.core.end_leases(closed_by, None).await;
        closed.sort_by(|a, b| b.closed_for_ms.cmp(&a.closed_for_ms).then(a.namespace.cmp(&b.namespace)));
        closed.truncate(PAGE_MAX);
        Ok(closed)
    }

    /// The longest ttl that was ever granted in each namespace.
    async fn longest_ttls(&mut self, mark: &StoreMark) -> Result<BTreeMap<Namespace, u64>, StoreError> {
        let mut longest: BTreeMap<Namespace, u64> = BTreeMap::new();
        let KeyRange(mut key, range_end) = self.core.names.all_records();
        loop {
            let request = RangeRequest {
                key,
                range_end: range_end.clone(),
                limit: RECORDS_AT_ONCE,
                ..RangeRequest::default()
            };
            let page = self.read_one(request).await?;
            let Some(last) = page.kvs.last() else { break };
            // The next name that there can be.
            key = [last.key.as_slice(), &[0]].concat();
            for kv in page.kvs {
                let Some((namespace, _)) = self.core.names.key_of(&kv.key) else { continue };
                let ttl_ms = self.budget.retry(async || longest_ttl_ms(&kv, mark)).await?;
                let own_ms = longest.entry(namespace).or_default();
                *own_ms = ttl_ms.max(*own_ms);
            }
            if !page.more {
                break;
            }
        }
        // Where nothing was granted, as far as is known, nothing is known.
        longest.retain(|_, own_ms| *own_ms > 0);
        Ok(longest)
    }

    /// Opens a store that an advance has closed.
    pub(super) async fn open_now(&mut self) -> Result<(), StoreError> {
        let open = async || self.core.wire.write(Vec::new(), vec![delete(self.core.names.closed())]).await;
        self.budget.retry(open).await.map(drop)
    }

    /// Counts what is there, and finds the floor that is above everything.
    async fn census(&mut self, mark: &StoreMark, lift: u64) -> Result<HolderCounts, StoreError> {
        let mut census = HolderCounts { keys: 0, ended: 0, floor: mark.floor };
        let mut highest = None;
        let keys = self.all_in(&self.core.names.all_records()).await?;
        for same in keys.chunk_by(|one, next| one.0 == next.0) {
            for at in self.sights(same).await? {
                census.keys += 1;
                census.ended += u64::from(at.live().is_some());
                let LeaseRecord { counter, .. } = at.record;
                // A key without a token left keeps no other from being raised.
                if counter >= census.floor && !counter.is_exhausted() {
                    census.floor = counter;
                    highest = Some(at.key);
                }
            }
        }
        match (census.floor.advanced(lift), highest) {
            (Some(floor), _) => Ok(HolderCounts { floor, ..census }),
            (None, Some(key)) => Err(StoreError::refused(&key, Refusal::TokensExhausted)),
            (None, None) => {
                Err(BadInput::new("increment", "would take the store's floor over the cap").into())
            }
        }
    }
}

struct HolderCounts {
    keys: u64,
    ended: u64,
    floor: fencehold_core::Token,
}
