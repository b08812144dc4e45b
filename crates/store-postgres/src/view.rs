//! Looking around: keys, lists and how much there is.

use fencehold_contract::{LeasePage, LeaseView, ListLeasesRequest, StoreError, StoreStatus};
use fencehold_core::{Key, Namespace};
use tokio_postgres::types::Type;

use super::acquire::number;
use super::budget::StatementBudget;
use super::response::{LeaseRow, each};
use super::{PostgresInner, ResendPolicy};

/// How many keys one page looks at, so that a filter that few pass does not read a million rows at once.
const LOOK_AT_MAX: i32 = 10_000;

impl PostgresInner {
    pub(super) async fn get(
        &self,
        budget: &mut StatementBudget,
        namespace: &Namespace,
        key: &Key,
    ) -> Result<Option<LeaseView>, StoreError> {
        let sql = self.sql("SELECT fencehold.lease_get($1, $2)::text");
        let found: Option<String> = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let asked: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
                    [(&namespace.as_str(), Type::TEXT), (&key.as_str(), Type::TEXT)];
                client.query_typed(&sql, &asked).await?[0].try_get(0)
            })
            .await?;
        found.map(|text| self.read::<LeaseRow>(&text).map(Into::into)).transpose()
    }

    pub(super) async fn list(
        &self,
        budget: &mut StatementBudget,
        namespace: &Namespace,
        request: &ListLeasesRequest,
    ) -> Result<LeasePage, StoreError> {
        let sql =
            self.sql("SELECT leases::text, next FROM fencehold.lease_list($1, $2, $3, $4, $5, $6, $7, $8)");
        let most = i32::try_from(request.limit).unwrap_or(i32::MAX);
        let (leases, next): (String, Option<i64>) = self
            .run(budget, ResendPolicy::Safe, async |client| {
                let rows = client
                    .query_typed(
                        &sql,
                        &[
                            (&namespace.as_str(), Type::TEXT),
                            (&request.prefix.as_deref(), Type::TEXT),
                            (&request.owner.as_ref().map(AsRef::<str>::as_ref), Type::TEXT),
                            (&request.task.as_ref().map(AsRef::<str>::as_ref), Type::TEXT),
                            (&request.include_free, Type::BOOL),
                            (&number(request.cursor.unwrap_or(0)), Type::INT8),
                            (&most, Type::INT4),
                            (&LOOK_AT_MAX, Type::INT4),
                        ],
                    )
                    .await?;
                Ok((rows[0].try_get(0)?, rows[0].try_get(1)?))
            })
            .await?;
        let leases = each(self.read::<Vec<LeaseRow>>(&leases)?);
        Ok(LeasePage { leases, next_cursor: next.map(i64::unsigned_abs) })
    }

    /// For how long this namespace is granted nothing after `store advance`.
    pub(super) async fn closed_for_ms(
        &self,
        budget: &mut StatementBudget,
        namespace: &Namespace,
    ) -> Result<u64, StoreError> {
        let sql = self.sql("SELECT fencehold.store_closed_ms($1)");
        let closed_for_ms: i64 = self
            .run(budget, ResendPolicy::Safe, async |client| {
                client.query_typed(&sql, &[(&namespace.as_str(), Type::TEXT)]).await?[0].try_get(0)
            })
            .await?;
        Ok(closed_for_ms.unsigned_abs())
    }

    pub(super) async fn status(
        &self,
        budget: &mut StatementBudget,
        namespace: &Namespace,
    ) -> Result<StoreStatus, StoreError> {
        let sql = self.sql("SELECT s.*, fencehold.job_live() AS jobs, fencehold.store_closed_ms($1) AS closed_for_ms,
                array(SELECT format('%s: failed %s times since %s, last at %s: %s', m.part, m.failure_count,
                    date_trunc('second', m.first_failed_at), date_trunc('second', m.last_failed_at), m.message) FROM fencehold.maintenance_errors() AS m) AS maintenance
             FROM fencehold.lease_status() AS s");
        let row = self
            .run(budget, ResendPolicy::Safe, async |client| {
                Ok(client.query_typed(&sql, &[(&namespace.as_str(), Type::TEXT)]).await?.remove(0))
            })
            .await?;
        let count = |name: &str| row.get::<_, i64>(name).unsigned_abs();
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
