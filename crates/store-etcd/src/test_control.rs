//! What a test does instead of waiting: it has etcd leases end before their time. Compiled only with the feature `gates`.

use fencehold_contract::{CallContext, StoreError};
use fencehold_core::{Key, Owner};

use super::codec::{self, StoredWaiter};
use super::key_names::KeyRange;
use super::messages::RangeRequest;
use super::snapshot::{ReadSet, get, range};
use super::{EtcdCall, EtcdStore};

/// Whose etcd lease is to end.
enum LeaseOwner {
    Hold(Key),
    Waiter(Owner),
    Closed { passed_ms: u64 },
}

impl EtcdStore {
    /// Does to the hold on a key what etcd does when its time is up.
    pub async fn run_out(&self, call: &CallContext, key: Key) -> Result<(), StoreError> {
        self.end(call, LeaseOwner::Hold(key)).await
    }

    /// Does to everybody of this name who stands in line what etcd does to one who has died.
    pub async fn end_waiting(&self, call: &CallContext, owner: Owner) -> Result<(), StoreError> {
        self.end(call, LeaseOwner::Waiter(owner)).await
    }

    /// Does to what `advance` has closed what etcd does when so much time has passed.
    pub async fn reopen(&self, call: &CallContext, passed_ms: u64) -> Result<(), StoreError> {
        self.end(call, LeaseOwner::Closed { passed_ms }).await
    }

    async fn end(&self, call: &CallContext, target: LeaseOwner) -> Result<(), StoreError> {
        self.ask(call, async move |call| call.end(target).await).await
    }
}

impl EtcdCall<'_> {
    async fn end(&mut self, target: LeaseOwner) -> Result<(), StoreError> {
        let leases: Vec<i64> = match target {
            LeaseOwner::Hold(key) => {
                let snapshot = self.see(&ReadSet::of(&self.namespace, vec![key])).await?;
                snapshot.keys.iter().filter_map(|at| at.held).map(|held| held.lease).collect()
            }
            LeaseOwner::Waiter(owner) => {
                let KeyRange(key, range_end) = self.core.names.all_waiting();
                let all = vec![range(RangeRequest { key, range_end, ..RangeRequest::default() })];
                let all = self.read(all).await?.into_iter().flat_map(|range| range.kvs);
                let of_owner =
                    |value: &[u8]| codec::read(value).is_ok_and(|it: StoredWaiter| it.owner == owner);
                all.filter(|kv| of_owner(&kv.value)).map(|kv| kv.lease).collect()
            }
            LeaseOwner::Closed { passed_ms } => {
                let KeyRange(key, range_end) = self.core.names.all_closed_namespaces();
                let namespaces = range(RangeRequest { key, range_end, ..RangeRequest::default() });
                let closed = self.read(vec![get(self.core.names.closed()), namespaces]).await?;
                let mut over = Vec::new();
                for lease in closed.into_iter().flat_map(|range| range.kvs).map(|kv| kv.lease) {
                    // It was granted a moment ago, so what is left is what it lasts.
                    if self.left_ms(lease).await? <= passed_ms {
                        over.push(lease);
                    }
                }
                over
            }
        };
        for lease in leases {
            self.budget.retry(async || self.core.wire.lease_revoke(lease).await).await?;
        }
        Ok(())
    }
}
