//! What a namespace may have: limits are set and looked at here. The calls that add something keep to them in the database, and by the
//! rules where those decide. What a namespace has much of is counted in the background, by the handle that sweeps leases.

use std::rc::Rc;
use std::time::Duration;

use fencehold_contract::stored::LimitsV1;
use fencehold_contract::{Quota, QuotaRequest, QuotaView, StoreError};
use fencehold_net::sleep;
use serde::Deserialize;

use super::PostgresInner;
use super::response::UsedRow;
use super::statement::Call;
use super::value::to_sql;

/// How often it is asked whether a namespace has to be counted: the database says which, and when.
const EVERY: Duration = Duration::from_secs(5);
/// How long one count may take.
const TIMEOUT_MS: u64 = 60_000;

/// As the database tells it.
#[derive(Deserialize)]
struct QuotaRow {
    /// `None`: no limit was set.
    limits: Option<LimitsV1>,
    used: UsedRow,
}

impl Call<'_> {
    /// Sets limits, if that is asked for, and tells those of a namespace with what it has.
    pub(super) async fn limits(&mut self, request: &QuotaRequest) -> Result<QuotaView, StoreError> {
        if let Some(set) = request.quota {
            self.begin_nothing_outdated()?;
            let sql = "SELECT fencehold.store_limits_set($1, $2, $3, $4, $5, $6, $7)";
            let whose = if request.all_namespaces { "" } else { self.namespace() };
            let limits = [
                set.max_queues,
                set.max_keys,
                set.max_jobs,
                set.max_bytes,
                set.max_schedules,
                set.max_ttl_ms,
            ];
            let [queues, keys, jobs, bytes, schedules, ttl_ms] = limits.map(|limit| limit.map(to_sql));
            self.execute(sql, &[&whose, &queues, &keys, &jobs, &bytes, &schedules, &ttl_ms])
                .await?;
            self.budget.outcome_unknown = true;
        }
        let sql = "SELECT fencehold.store_limits($1)::text";
        let text: String = self.value(sql, &[&self.namespace()]).await?;
        let QuotaRow { limits, used } = self.read(&text)?;
        Ok(QuotaView { quota: limits.map_or(Quota::USUAL, Quota::from), usage: used.into() })
    }
}

impl PostgresInner {
    /// Counts what limited namespaces have, for as long as the handle is open.
    pub(super) async fn keep_counting(self: Rc<Self>) {
        loop {
            sleep(EVERY).await;
            if !self.works() || !self.upkeep.sweeps_leases.get() || self.begin_nothing_outdated().is_err() {
                continue;
            }
            let counted = self.count_namespaces().await;
            self.maintained("limits", counted.as_ref().err()).await;
        }
    }

    async fn count_namespaces(&self) -> Result<(), StoreError> {
        let sql = "SELECT fencehold.namespace_count()";
        while self.own_call(TIMEOUT_MS).value(sql, &[]).await? {}
        Ok(())
    }
}
