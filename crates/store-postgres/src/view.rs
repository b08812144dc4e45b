//! Looking around: keys, lists and how much there is.

use std::collections::BTreeMap;

use fencehold_contract::metrics::{Counter, EventCounts};
use fencehold_contract::stored::{EndedV1, HowV1};
use fencehold_contract::{
    LeasePage, LeaseStats, LeaseStatsRequest, LeaseView, ListLeasesRequest, StoreError, StoreStatus,
};
use fencehold_core::{Key, Owner, Task};
use serde::de::DeserializeOwned;
use tokio_postgres::Row;

use super::response::{LeaseRow, each};
use super::statement::{Call, Parameter};
use super::value::{from_sql, limit_to_sql, to_sql};

/// How many keys one page looks at, so that a filter that few pass does not read a million rows at once.
const LOOK_AT_MAX: i32 = 10_000;

impl Call<'_> {
    pub(super) async fn get(&mut self, key: &Key) -> Result<Option<LeaseView>, StoreError> {
        let sql = "SELECT fencehold.lease_get($1, $2)::text";
        let found: Option<String> = self.value(sql, &[&self.namespace(), &key.as_str()]).await?;
        found.map(|text| self.read::<LeaseRow>(&text).map(Into::into)).transpose()
    }

    /// At first as many keys as fill the page are looked at; where few of them pass, more.
    pub(super) async fn list(&mut self, request: &ListLeasesRequest) -> Result<LeasePage, StoreError> {
        let mut page = LeasePage { leases: Vec::new(), next_cursor: request.cursor };
        let (mut looks, mut left) = (limit_to_sql(request.limit).saturating_add(1), LOOK_AT_MAX);
        loop {
            looks = looks.min(left);
            self.look_at_leases(request, looks, &mut page).await?;
            left -= looks;
            if page.next_cursor.is_none() || page.leases.len() >= request.limit || left <= 0 {
                return Ok(page);
            }
            looks = looks.saturating_mul(10);
        }
    }

    async fn look_at_leases(
        &mut self,
        request: &ListLeasesRequest,
        looks: i32,
        page: &mut LeasePage,
    ) -> Result<(), StoreError> {
        let sql = "SELECT leases::text, next FROM fencehold.lease_list($1, $2, $3, $4, $5, $6, $7, $8, $9)";
        let asked: [&dyn Parameter; 9] = [
            &self.namespace(),
            &request.prefix.as_deref(),
            &request.owner.as_ref().map(Owner::as_str),
            &request.task.as_ref().map(Task::as_str),
            &request.include_free,
            &to_sql(page.next_cursor.unwrap_or(0)),
            &limit_to_sql(request.limit - page.leases.len()),
            &looks,
            &request.task_prefix.as_ref().map(Task::as_str),
        ];
        let (leases, next): (String, Option<i64>) = self.row(sql, &asked).await?;
        page.leases.extend(each(self.read::<Vec<LeaseRow>>(&leases)?));
        page.next_cursor = next.map(from_sql);
        Ok(())
    }

    /// For how long this namespace is granted nothing after `store advance`.
    pub(super) async fn closed_for_ms(&mut self) -> Result<u64, StoreError> {
        let sql = "SELECT fencehold.store_closed_ms($1)";
        self.value(sql, &[&self.namespace()]).await.map(from_sql)
    }

    pub(super) async fn stats(&mut self, request: LeaseStatsRequest) -> Result<LeaseStats, StoreError> {
        let sql = "SELECT from_ms, to_ms, complete, counts::text, event_seq FROM fencehold.lease_ended_counts($1, $2)";
        let asked: [&dyn Parameter; 2] = [&self.namespace(), &to_sql(request.since_ms)];
        let row: (i64, i64, bool, String, Option<i64>) = self.row(sql, &asked).await?;
        let (from_ms, to_ms, complete, counts, event_seq) = row;
        let event_seq = event_seq.map(from_sql);
        let begins_at_ms = from_sql(from_ms);
        let stats = LeaseStats { begins_at_ms, complete, event_seq, ..LeaseStats::default() };
        let mut stats = stats.in_steps(request, from_sql(to_ms));
        for (minute_ms, how, count) in self.read::<Vec<(u64, String, u64)>>(&counts)? {
            if let Some(how) = stored::<HowV1>(&how) {
                stats.add(how.into(), minute_ms, count);
            }
        }
        Ok(stats)
    }

    /// How many events of each kind there ever were, in all namespaces, and up to which event.
    pub(super) async fn event_counts(&mut self) -> Result<(BTreeMap<String, u64>, Option<u64>), StoreError> {
        let sql = "SELECT counts::text, event_seq FROM fencehold.event_totals()";
        let (counts, event_seq): (String, Option<i64>) = self.row(sql, &[]).await?;
        Ok((self.read(&counts)?, event_seq.map(from_sql)))
    }

    pub(super) async fn status(&mut self) -> Result<StoreStatus, StoreError> {
        let sql = "SELECT s.*, fencehold.job_live() AS jobs, fencehold.store_closed_ms($1) AS closed_for_ms,
                array(SELECT format('%s: failed %s times since %s, last at %s: %s', m.part, m.failure_count,
                    date_trunc('second', m.first_failed_at), date_trunc('second', m.last_failed_at), m.message) FROM fencehold.maintenance_errors() AS m) AS maintenance
             FROM fencehold.lease_status() AS s";
        let row: Row = self.row(sql, &[&self.namespace()]).await?;
        let count = |name: &str| from_sql(row.get(name));
        Ok(StoreStatus {
            store: super::STORE.to_owned(),
            key_count: count("keys"),
            held_count: count("held"),
            waiter_count: count("waiters"),
            job_count: count("jobs"),
            newest_event_seq: count("last_event"),
            closed_for_ms: count("closed_for_ms"),
            maintenance_errors: row.get("maintenance"),
            ..StoreStatus::default()
        })
    }
}

/// A variant by its stored name. `None`: a newer program wrote it.
fn stored<T: DeserializeOwned>(name: &str) -> Option<T> {
    serde_json::from_value(name.into()).ok()
}

/// The counter of a kind of events, as the database names it. `None`: a newer program counts it.
pub(super) fn counter_of<'a>(counts: &'a EventCounts, kind: &str) -> Option<&'a Counter> {
    Some(match kind.split_once('/') {
        Some(("lease_ended", how)) => counts.leases_ended(stored::<HowV1>(how)?.into())?,
        Some(("job_attempt_ended", how)) => counts.attempts_ended(stored::<EndedV1>(how)?.into())?,
        _ => match kind {
            "lease_acquired" => &counts.granted,
            "stale_write_blocked" => &counts.stale_writes_blocked,
            "store_rewound" => &counts.rewound,
            "job_enqueued" => &counts.enqueued,
            "job_claimed" => &counts.claimed,
            "job_quarantined" => &counts.quarantined,
            "schedule_fired" => &counts.fired,
            _ => return None,
        },
    })
}
