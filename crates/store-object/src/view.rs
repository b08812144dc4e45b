//! Looking around.

use std::collections::BTreeMap;

use fencehold_contract::lease_records::{holder_view, is_listed};
use fencehold_contract::{
    EndingView, LeasePage, LeaseStats, LeaseStatsRequest, LeaseView, ListLeasesRequest, StoreError,
    StoreStatus,
};
use fencehold_core::lease::{HoldState, LeaseCommand, LeaseRecord, LeaseStanding, decide};
use fencehold_core::{Key, Namespace, Token};
use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::holder::AT_ONCE;
use super::object_names;
use super::observations::ObservedVersion;
use super::shared::{LIMIT, ObjectStoreInner};

impl ObjectStoreInner {
    pub(super) async fn get(
        &self,
        namespace: &Namespace,
        key: &Key,
    ) -> Result<Option<LeaseView>, StoreError> {
        let seen = self.look(&object_names::of(namespace, key)?, LIMIT).await?;
        let record = self.record_of(key, seen.as_ref())?;
        if seen.is_none() {
            self.reach(LIMIT).await?;
        }
        Ok(seen.map(|seen| self.view(&seen, &record)))
    }

    /// A page of a list: names are listed whole each time, in the order of [`object_names::place`], and only as many objects
    /// are read as the page has room for.
    pub(super) async fn list(
        &self,
        namespace: &Namespace,
        request: &ListLeasesRequest,
    ) -> Result<LeasePage, StoreError> {
        let prefix = request.prefix.as_deref().unwrap_or_default();
        let names = self.names(&object_names::folder(namespace)).await?;
        let from = request.cursor.unwrap_or(0);
        let mut due: BTreeMap<u64, String> = names
            .into_iter()
            .filter(|name| object_names::has_prefix(name, namespace, prefix))
            .map(|name| (object_names::place(&name), name))
            .filter(|(place, _)| *place >= from)
            .collect();
        let rest = due.keys().nth(request.limit).copied().map(|next| (next, due.split_off(&next)));
        let next = rest.map(|(next, _)| next);
        let seen = self.look_at(due.into_values().collect()).await?;
        let mut leases = Vec::new();
        for seen in seen {
            let record = self.record_of(&seen.body.key, Some(&seen))?;
            let view = self.view(&seen, &record);
            if is_listed(request, record.hold.as_ref().filter(|_| view.holder.is_some())) {
                leases.push(view);
            }
        }
        Ok(LeasePage { leases, next_cursor: next })
    }

    /// How leases ended, by what the objects of the keys say: so many requests as there are keys.
    pub(super) async fn stats(
        &self,
        namespace: &Namespace,
        request: LeaseStatsRequest,
    ) -> Result<LeaseStats, StoreError> {
        let mut stats = LeaseStats::of(request, self.clock.now().wall_ms);
        for seen in self.look_at(self.names(&object_names::folder(namespace)).await?).await? {
            let record = self.record_of(&seen.body.key, Some(&seen))?;
            let now = self.clock.now();
            let standing = LeaseStanding { now, floor: Token::NONE, term: seen.term(now) };
            // What has run out and is on no record yet counts too.
            let noted = decide(&standing, &record, &LeaseCommand::Expire).record;
            stats.count_key(noted.as_ref().unwrap_or(&record).endings());
        }
        Ok(stats)
    }

    pub(super) async fn status(&self, namespace: &Namespace) -> Result<StoreStatus, StoreError> {
        let seen = self.look_at(self.names(object_names::LEASES).await?).await?;
        let now = self.clock.now();
        let held = seen
            .iter()
            .filter(|seen| matches!(seen.term(now), HoldState::Live { .. }))
            .count();
        Ok(StoreStatus {
            store: self.can.store.to_owned(),
            key_count: seen.len() as u64,
            held_count: held as u64,
            closed_for_ms: self.closed_for_ms(namespace).await?,
            ..StoreStatus::default()
        })
    }

    /// As far as new keys are concerned, which are closed for as long as any other of their namespace. A handle counts from
    /// when it first saw that.
    pub(super) async fn closed_for_ms(&self, namespace: &Namespace) -> Result<u64, StoreError> {
        Ok(self.floor_of_new_keys(namespace, LIMIT).await?.err().unwrap_or(0))
    }

    pub(super) async fn names(&self, folder: &str) -> Result<Vec<String>, StoreError> {
        self.cas.list(folder, LIMIT).await.map_err(|error| self.refusal(error))
    }

    /// Reads many objects, many at once.
    pub(super) async fn look_at(&self, names: Vec<String>) -> Result<Vec<ObservedVersion>, StoreError> {
        let looks = names.into_iter().map(|name| async move { self.look(&name, LIMIT).await });
        let seen: Vec<_> = stream::iter(looks).buffer_unordered(AT_ONCE).try_collect().await?;
        Ok(seen.into_iter().flatten().collect())
    }

    pub(super) fn view(&self, seen: &ObservedVersion, record: &LeaseRecord) -> LeaseView {
        let now = self.clock.now();
        let holder = match (seen.term(now), &record.hold) {
            (HoldState::Live { remaining_ms }, Some(hold)) => {
                let age_ms = now.store_ms.saturating_sub(hold.since.store_ms);
                let renewed_ago_ms = seen.own.then(|| now.store_ms.saturating_sub(seen.base_ms));
                Some(holder_view(hold, age_ms, remaining_ms, renewed_ago_ms))
            }
            _ => None,
        };
        LeaseView {
            key: seen.body.key.clone(),
            token: record.counter,
            holder,
            waiter_count: 0,
            endings: record.endings().iter().map(EndingView::of).collect(),
        }
    }
}
