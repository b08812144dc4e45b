//! Force: ending holds of others, and `advance`. What may have been done is never sent again: it could strike a holder that came
//! since.

use fencehold_contract::{AdvancedStore, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError};
use fencehold_core::limits::PAGE_MAX;
use fencehold_core::{Key, Owner, Refusal};
use tokio_postgres::Row;

use super::ResendPolicy;
use super::fenced::FencedAction;
use super::response::{ClosedRow, ErrorRow, RevokedRow, each};
use super::statement::{Call, Parameter, query_one};
use super::value::{from_sql, limit_to_sql, to_sql};

impl Call<'_> {
    pub(super) async fn revoke(
        &mut self,
        request: &RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        let (task, owner, prefix, task_prefix) = match &request.target {
            RevokeTarget::Key { key, only_token } => {
                let only = only_token.map(|token| to_sql(token.get()));
                return self.revoke_one(request, key, only).await;
            }
            RevokeTarget::Task(task) => (Some(task.as_str()), None, None, None),
            RevokeTarget::Owner(owner) => (None, Some(owner.as_str()), None, None),
            RevokeTarget::Prefix(prefix) => (None, None, Some(prefix.as_str()), None),
            RevokeTarget::TaskPrefix(above) => (None, None, None, Some(above.as_str())),
        };
        let sql = self
            .sql("SELECT ended::text, next FROM fencehold.lease_revoke_many($1,$2,$3,$4,$5,$6,$7,$8,$9,$10)");
        let mut all: Vec<RevokedLease> = Vec::new();
        let mut after = 0_i64;
        let (namespace, by, reason) = (self.namespace(), request.by.as_str(), request.reason.as_str());
        loop {
            let wanted = FencedAction::Leases(&request.target);
            let page = self.run_past_fences(ResendPolicy::Never, wanted, async |client, lock_ms| {
                let most = limit_to_sql(PAGE_MAX);
                let asked: [&dyn Parameter; 10] =
                    [&namespace, &task, &owner, &prefix, &after, &most, &by, &reason, &lock_ms, &task_prefix];
                query_one::<(String, Option<i64>)>(client, &sql, &asked).await
            });
            match page.await {
                Ok((ended, next)) => {
                    all.extend(self.read::<Vec<RevokedRow>>(&ended)?.into_iter().map(RevokedLease::from));
                    match next {
                        Some(next) => after = next,
                        None => return Ok(all),
                    }
                }
                // 'Nothing was done' is true of this page alone.
                Err(error) if !all.is_empty() => {
                    let why = format!("{} leases were ended, then: {error}", all.len());
                    return Err(StoreError::OutcomeUnknown { message: why });
                }
                Err(error) => return Err(error),
            }
        }
    }

    async fn revoke_one(
        &mut self,
        request: &RevokeLeasesRequest,
        key: &Key,
        only_token: Option<i64>,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        let sql = self.sql("SELECT fencehold.lease_revoke($1, $2, $3, $4, $5, $6)::text");
        let (namespace, by, reason) = (self.namespace(), request.by.as_str(), request.reason.as_str());
        let keys = [key.as_str()];
        let wanted = FencedAction::Keys(&keys);
        let (answer,): (String,) = self
            .run_past_fences(ResendPolicy::Never, wanted, async |client, lock_ms| {
                let asked: [&dyn Parameter; 6] =
                    [&namespace, &key.as_str(), &only_token, &by, &reason, &lock_ms];
                query_one(client, &sql, &asked).await
            })
            .await?;
        self.read::<Result<Vec<RevokedRow>, ErrorRow>>(&answer)?
            .map(each)
            .map_err(StoreError::from)
    }

    pub(super) async fn advance(&mut self, by: &Owner, lift: u64) -> Result<AdvancedStore, StoreError> {
        let sql = self.sql(
            "SELECT keys, ended, closed_for_ms, exhausted, namespaces::text FROM fencehold.lease_advance($1, $2, $3)",
        );
        // More than any token can be is refused by the database, which says for which key.
        let lift = to_sql(lift).min(i64::MAX / 4);
        let row: Row = self
            .run_past_fences(ResendPolicy::Never, FencedAction::Everything, async |client, lock_ms| {
                query_one(client, &sql, &[&lift, &by.as_str(), &lock_ms]).await
            })
            .await?;
        if let Some(key) = row.get::<_, Option<String>>("exhausted") {
            return Err(StoreError::refused(&Key::new(key)?, Refusal::TokensExhausted));
        }
        let count = |name: &str| from_sql(row.get(name));
        let (keys, ended, closed_for_ms) = (count("keys"), count("ended"), count("closed_for_ms"));
        let namespaces = each(self.read::<Vec<ClosedRow>>(&row.get::<_, String>("namespaces"))?);
        Ok(AdvancedStore { key_count: keys, ended_count: ended, closed_for_ms, namespaces })
    }

    /// Opens a store that an advance has closed.
    pub(super) async fn open_now(&mut self) -> Result<(), StoreError> {
        self.execute("SELECT fencehold.store_open_now()", &[]).await
    }
}
