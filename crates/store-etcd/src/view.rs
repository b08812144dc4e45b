//! Looking around: one key, pages of keys, and how much there is.

use fencehold_contract::{
    EndingView, HolderView, LeasePage, LeaseView, ListLeasesRequest, StoreError, StoreStatus,
};
use fencehold_core::{Key, Namespace};
use fencehold_net::CallBudget;
use futures_util::future::join_all;

use super::EtcdInner;
use super::key_names::KeyRange;
use super::messages::{ASCENDING, BY_CREATION, RangeRequest, RangeResponse, RequestOp};
use super::snapshot::{ClosedState, KEYS_PER_LOOK, KeySnapshot, ReadSet, count, range};

/// How many records are read at once when all are wanted.
const RECORDS_AT_ONCE: usize = 500;

impl EtcdInner {
    pub(super) async fn get(
        &self,
        budget: &mut CallBudget,
        namespace: &Namespace,
        key: &Key,
    ) -> Result<Option<LeaseView>, StoreError> {
        let snapshot = self.see(budget, &ReadSet::of(namespace, vec![key.clone()])).await?;
        match snapshot.keys.into_iter().find(|at| at.record_revision > 0) {
            Some(at) => Ok(Some(self.view(budget, &at).await?)),
            None => Ok(None),
        }
    }

    pub(super) async fn list(
        &self,
        budget: &mut CallBudget,
        namespace: &Namespace,
        request: &ListLeasesRequest,
    ) -> Result<LeasePage, StoreError> {
        let prefix = request.prefix.as_deref().unwrap_or("");
        let span = self.names.records(namespace, prefix);
        let (keys, next) = self.page(budget, span, request.cursor.unwrap_or(0), request.limit).await?;
        let mut shown = self.sights(budget, namespace, &keys).await?;
        shown.retain(|at| is_asked_for(at, request));
        let views = shown.iter().map(|at| {
            let mut budget = budget.clone();
            async move { self.view(&mut budget, at).await }
        });
        let leases = join_all(views).await.into_iter().collect::<Result<_, _>>()?;
        Ok(LeasePage { leases, next_cursor: next })
    }

    /// One page of the keys that have a record, in the order in which they were first held: that order never changes, and
    /// the revision that made a record is its cursor.
    async fn page(
        &self,
        budget: &mut CallBudget,
        KeyRange(key, range_end): KeyRange,
        after: u64,
        limit: usize,
    ) -> Result<(Vec<(Namespace, Key)>, Option<u64>), StoreError> {
        let after = i64::try_from(after).unwrap_or(i64::MAX);
        let request = RangeRequest {
            key,
            range_end,
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            sort_order: ASCENDING,
            sort_target: BY_CREATION,
            keys_only: true,
            min_create_revision: after.saturating_add(1),
            ..RangeRequest::default()
        };
        let page = self.read_one(budget, request).await?;
        let last = page.kvs.last().and_then(|kv| u64::try_from(kv.create_revision).ok());
        let next = last.filter(|_| page.kvs.len() >= limit);
        Ok((page.kvs.iter().filter_map(|kv| self.names.key_of(&kv.key)).collect(), next))
    }

    /// Every key with a record among these names.
    pub(super) async fn all_in(
        &self,
        budget: &mut CallBudget,
        records: &KeyRange,
    ) -> Result<Vec<(Namespace, Key)>, StoreError> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let (keys, next) = self.page(budget, records.clone(), after, RECORDS_AT_ONCE).await?;
            all.extend(keys);
            match next {
                Some(next) => after = next,
                None => return Ok(all),
            }
        }
    }

    pub(super) async fn sights(
        &self,
        budget: &mut CallBudget,
        namespace: &Namespace,
        keys: &[(Namespace, Key)],
    ) -> Result<Vec<KeySnapshot>, StoreError> {
        let mut sights = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_PER_LOOK) {
            let keys = some.iter().map(|(_, key)| key.clone()).collect();
            sights.extend(self.see(budget, &ReadSet::of(namespace, keys)).await?.keys);
        }
        Ok(sights)
    }

    async fn view(&self, budget: &mut CallBudget, at: &KeySnapshot) -> Result<LeaseView, StoreError> {
        let mut holder = None;
        if let (Some(hold), Some(held)) = (&at.record.hold, at.live()) {
            let left_ms = self.left_ms(budget, held.lease).await?;
            let age_ms = self.wall_ms().saturating_sub(hold.since.wall_ms);
            holder = Some(HolderView {
                owner: hold.owner.clone(),
                task: hold.task.clone(),
                ttl_ms: hold.ttl_ms,
                max_age_ms: hold.max_age_ms.map(std::num::NonZeroU64::get),
                priority: hold.priority,
                age_ms,
                acquired_at_ms: hold.since.wall_ms,
                remaining_ms: left_ms.min(hold.ttl_ms),
                renewed_ago_ms: None,
                yield_request: None,
            });
        }
        Ok(LeaseView {
            key: at.key.clone(),
            token: at.record.counter,
            holder,
            waiter_count: at.in_line,
            endings: at.record.endings().iter().map(EndingView::of).collect(),
        })
    }

    pub(super) async fn status(
        &self,
        budget: &mut CallBudget,
        namespace: &Namespace,
    ) -> Result<StoreStatus, StoreError> {
        let counts = vec![
            count(self.names.all_records()),
            count(self.names.all_held()),
            count(self.names.all_waiting()),
        ];
        let counted = self.read(budget, counts).await?;
        let nth = |nth: usize| counted.get(nth).map_or(0, RangeResponse::total);
        Ok(StoreStatus {
            store: super::STORE.to_owned(),
            key_count: nth(0),
            held_count: nth(1),
            waiter_count: nth(2),
            closed_for_ms: self.closed_for_ms(budget, namespace).await?,
            ..StoreStatus::default()
        })
    }

    /// The key that closes a namespace is on an etcd lease, which says how long it lasts.
    pub(super) async fn closed_for_ms(
        &self,
        budget: &mut CallBudget,
        namespace: &Namespace,
    ) -> Result<u64, StoreError> {
        let ops = ClosedState::ops(&self.names, namespace).to_vec();
        let mut read = self.read(budget, ops).await?.into_iter();
        let closing = ClosedState::read(|| read.next().unwrap_or_default());
        let Some(lease) = closing.by else { return Ok(0) };
        // It was there a moment ago: what is left may be less than etcd can say.
        Ok(self.left_ms(budget, lease).await?.max(1_000))
    }

    /// Reads ranges in one transaction.
    pub(super) async fn read(
        &self,
        budget: &mut CallBudget,
        ops: Vec<RequestOp>,
    ) -> Result<Vec<RangeResponse>, StoreError> {
        budget.retry(async || self.wire.read(ops.clone()).await).await
    }

    pub(super) async fn read_one(
        &self,
        budget: &mut CallBudget,
        request: RangeRequest,
    ) -> Result<RangeResponse, StoreError> {
        Ok(self.read(budget, vec![range(request)]).await?.pop().unwrap_or_default())
    }
}

fn is_asked_for(at: &KeySnapshot, request: &ListLeasesRequest) -> bool {
    let hold = at.record.hold.as_ref().filter(|_| at.live().is_some());
    let owner = request.owner.as_ref();
    let task = request.task.as_ref();
    (hold.is_some() || request.include_free)
        && owner.is_none_or(|owner| hold.is_some_and(|hold| hold.owner == *owner))
        && task.is_none_or(|task| hold.is_some_and(|hold| hold.task.as_ref() == Some(task)))
}
