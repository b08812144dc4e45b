//! Looking around: keys, lists and how much there is.

use fencehold_contract::{LeasePage, LeaseView, ListLeasesRequest, StoreError, StoreStatus};
use fencehold_core::{Key, Owner, Task};
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

    pub(super) async fn list(&mut self, request: &ListLeasesRequest) -> Result<LeasePage, StoreError> {
        let sql = "SELECT leases::text, next FROM fencehold.lease_list($1, $2, $3, $4, $5, $6, $7, $8)";
        let asked: [&dyn Parameter; 8] = [
            &self.namespace(),
            &request.prefix.as_deref(),
            &request.owner.as_ref().map(Owner::as_str),
            &request.task.as_ref().map(Task::as_str),
            &request.include_free,
            &to_sql(request.cursor.unwrap_or(0)),
            &limit_to_sql(request.limit),
            &LOOK_AT_MAX,
        ];
        let (leases, next): (String, Option<i64>) = self.row(sql, &asked).await?;
        let leases = each(self.read::<Vec<LeaseRow>>(&leases)?);
        Ok(LeasePage { leases, next_cursor: next.map(from_sql) })
    }

    /// For how long this namespace is granted nothing after `store advance`.
    pub(super) async fn closed_for_ms(&mut self) -> Result<u64, StoreError> {
        let sql = "SELECT fencehold.store_closed_ms($1)";
        self.value(sql, &[&self.namespace()]).await.map(from_sql)
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
