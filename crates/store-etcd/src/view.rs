//! Looking around: one key, pages of keys, and how much there is.

use fencehold_contract::lease_records::{holder_view, is_listed};
use fencehold_contract::{
    EndingView, LeasePage, LeaseStats, LeaseStatsRequest, LeaseView, ListLeasesRequest, StoreError,
    StoreStatus,
};
use fencehold_core::lease::LeaseCommand;
use fencehold_core::{Key, Namespace};
use futures_util::future::join_all;

use super::EtcdCall;
use super::key_names::KeyRange;
use super::messages::{ASCENDING, BY_CREATION, RangeRequest, RangeResponse, RequestOp};
use super::snapshot::{ClosedState, KEYS_PER_LOOK, KeySnapshot, ReadSet, count, range};

/// How many records are read at once when all are wanted.
const RECORDS_AT_ONCE: usize = 500;

impl EtcdCall<'_> {
    pub(super) async fn get(&mut self, key: &Key) -> Result<Option<LeaseView>, StoreError> {
        let snapshot = self.see(&ReadSet::of(&self.namespace, vec![key.clone()])).await?;
        match snapshot.keys.into_iter().find(|at| at.record_revision > 0) {
            Some(at) => Ok(Some(self.view(&at).await?)),
            None => Ok(None),
        }
    }

    pub(super) async fn list(&mut self, request: &ListLeasesRequest) -> Result<LeasePage, StoreError> {
        let prefix = request.prefix.as_deref().unwrap_or("");
        let span = self.core.names.records(&self.namespace, prefix);
        let (keys, next) = self.page(span, request.cursor.unwrap_or(0), request.limit).await?;
        let mut shown = self.sights(&keys).await?;
        shown.retain(|at| is_listed(request, at.record.hold.as_ref().filter(|_| at.live().is_some())));
        let views = shown.iter().map(|at| {
            let mut call = self.clone();
            async move { call.view(at).await }
        });
        let leases = join_all(views).await.into_iter().collect::<Result<_, _>>()?;
        Ok(LeasePage { leases, next_cursor: next })
    }

    /// How leases ended, by what the records of the keys say.
    pub(super) async fn stats(&mut self, request: LeaseStatsRequest) -> Result<LeaseStats, StoreError> {
        let mut stats = LeaseStats::of(request, self.core.wall_ms());
        let keys = self.all_in(&self.core.names.records(&self.namespace, "")).await?;
        let snapshot = self.see(&ReadSet::of(&self.namespace, Vec::new())).await?;
        for at in self.sights(&keys).await? {
            // What has run out and is on no record yet counts too.
            let noted = self.core.decide(&snapshot, &at, &LeaseCommand::Expire).record;
            stats.count_key(noted.as_ref().unwrap_or(&at.record).endings());
        }
        Ok(stats)
    }

    /// One page of the keys that have a record, in the order in which they were first held: that order never changes, and
    /// the revision that made a record is its cursor.
    async fn page(
        &mut self,
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
        let page = self.read_one(request).await?;
        let last = page.kvs.last().and_then(|kv| u64::try_from(kv.create_revision).ok());
        let next = last.filter(|_| page.kvs.len() >= limit);
        Ok((page.kvs.iter().filter_map(|kv| self.core.names.key_of(&kv.key)).collect(), next))
    }

    /// Every key with a record among these names.
    pub(super) async fn all_in(&mut self, records: &KeyRange) -> Result<Vec<(Namespace, Key)>, StoreError> {
        let (mut all, mut after) = (Vec::new(), 0);
        loop {
            let (keys, next) = self.page(records.clone(), after, RECORDS_AT_ONCE).await?;
            all.extend(keys);
            match next {
                Some(next) => after = next,
                None => return Ok(all),
            }
        }
    }

    /// Keys of one namespace, as they stand.
    pub(super) async fn sights(&mut self, keys: &[(Namespace, Key)]) -> Result<Vec<KeySnapshot>, StoreError> {
        let mut sights = Vec::with_capacity(keys.len());
        for some in keys.chunks(KEYS_PER_LOOK) {
            let keys = some.iter().map(|(_, key)| key.clone()).collect();
            sights.extend(self.see(&ReadSet::of(&some[0].0, keys)).await?.keys);
        }
        Ok(sights)
    }

    async fn view(&mut self, at: &KeySnapshot) -> Result<LeaseView, StoreError> {
        let mut holder = None;
        if let (Some(hold), Some(held)) = (&at.record.hold, at.live()) {
            let left_ms = self.left_ms(held.lease).await?;
            let age_ms = self.core.wall_ms().saturating_sub(hold.since.wall_ms);
            holder = Some(holder_view(hold, age_ms, left_ms.min(hold.ttl_ms), None));
        }
        Ok(LeaseView {
            key: at.key.clone(),
            token: at.record.counter,
            holder,
            waiter_count: at.in_line,
            endings: at.record.endings().iter().map(EndingView::of).collect(),
        })
    }

    pub(super) async fn status(&mut self) -> Result<StoreStatus, StoreError> {
        let counts = vec![
            count(self.core.names.all_records()),
            count(self.core.names.all_held()),
            count(self.core.names.all_waiting()),
        ];
        let counted = self.read(counts).await?;
        let nth = |nth: usize| counted.get(nth).map_or(0, RangeResponse::total);
        Ok(StoreStatus {
            store: super::STORE.to_owned(),
            key_count: nth(0),
            held_count: nth(1),
            waiter_count: nth(2),
            closed_for_ms: self.closed_for_ms().await?,
            ..StoreStatus::default()
        })
    }

    /// The key that closes a namespace is on an etcd lease, which says how long it lasts.
    pub(super) async fn closed_for_ms(&mut self) -> Result<u64, StoreError> {
        let ops = ClosedState::ops(&self.core.names, &self.namespace).to_vec();
        let mut read = self.read(ops).await?.into_iter();
        let closing = ClosedState::read(|| read.next().unwrap_or_default());
        let Some(lease) = closing.by else { return Ok(0) };
        // It was there a moment ago: what is left may be less than etcd can say.
        Ok(self.left_ms(lease).await?.max(1_000))
    }

    /// Reads ranges in one transaction.
    pub(super) async fn read(&mut self, ops: Vec<RequestOp>) -> Result<Vec<RangeResponse>, StoreError> {
        self.budget.retry(async || self.core.wire.read(ops.clone()).await).await
    }

    pub(super) async fn read_one(&mut self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        Ok(self.read(vec![range(request)]).await?.pop().unwrap_or_default())
    }
}
