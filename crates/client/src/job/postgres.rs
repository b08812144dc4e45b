//! A job's end and its effects in a transaction of one's own, where its work is in the same PostgreSQL database as the job: then
//! both happen, or neither.
//!
//! Deliberately absent: connections. The transaction is the caller's, and so are its commit and its rollback.

use fencehold_core::BlockedAction;
use fencehold_core::job::EffectName;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Row, Transaction};

use super::{Job, JobError};
use crate::fence::postgres::{SCHEMA, as_bigint, quoted};
use crate::json;
use crate::once::in_doubt;

/// The SQLSTATE of an effect in doubt.
const IN_DOUBT: &str = "FH005";
/// Those of an attempt that is stale, or over.
const STALE: [&str; 2] = ["FH001", "FH002"];

impl Job {
    /// Completes the job in this transaction: once it commits, the job is done, and its work is there; if it does not, neither
    /// is. What the handler returns afterwards is then only said again.
    ///
    /// ```no_run
    /// use fencehold::{Job, JobError, Outcome};
    ///
    /// async fn charge(job: Job, database: &mut tokio_postgres::Client, cents: i64) -> Result<Outcome, JobError> {
    ///     let mut transaction = database.transaction().await?;
    ///     transaction.execute("UPDATE account SET balance = balance - $1 WHERE id = 7", &[&cents]).await?;
    ///     job.complete_tx(&mut transaction, &cents).await?;
    ///     transaction.commit().await?;
    ///     Outcome::complete(&cents)
    /// }
    /// ```
    ///
    /// A stale attempt is refused, and so is one whose claim ran out and was noted: roll back, by dropping the transaction.
    pub async fn complete_tx<T: Serialize + ?Sized>(
        &self,
        transaction: &mut Transaction<'_>,
        result: &T,
    ) -> Result<(), JobError> {
        self.complete_tx_in_schema(SCHEMA, transaction, result).await
    }

    /// The same where the store's URL names another schema.
    pub async fn complete_tx_in_schema<T: Serialize + ?Sized>(
        &self,
        schema: &str,
        transaction: &mut Transaction<'_>,
        result: &T,
    ) -> Result<(), JobError> {
        let result = json::written("result", result)?;
        let schema = quoted(schema)?;
        let function = "job_complete_hashed($1::text::uuid, $2::text::uuid, $3, $4)";
        let completed = self.call(transaction, &schema, function, &[&result]).await;
        self.recorded(BlockedAction::Complete, completed).await?;
        Ok(())
    }

    /// Has an effect once, in this transaction: if it is recorded already, its stored value is returned and `effect` does not
    /// run. Otherwise it runs with the transaction, and what it gives is recorded there: once it commits, both are there.
    ///
    /// A stale attempt is refused before its effect runs, and so is one whose claim has run out. Where an earlier attempt announced the
    /// effect ([`once_with_intent`](Job::once_with_intent)) and a person must look, the job stops.
    pub async fn once_tx<T: Serialize + DeserializeOwned>(
        &self,
        transaction: &mut Transaction<'_>,
        name: impl AsRef<str>,
        effect: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        self.once_tx_in_schema(SCHEMA, transaction, name, effect).await
    }

    /// The same where the store's URL names another schema.
    pub async fn once_tx_in_schema<T: Serialize + DeserializeOwned>(
        &self,
        schema: &str,
        transaction: &mut Transaction<'_>,
        name: impl AsRef<str>,
        effect: impl AsyncFnOnce(&mut Transaction<'_>) -> Result<T, JobError>,
    ) -> Result<T, JobError> {
        let name = EffectName::new(name.as_ref())?;
        let schema = quoted(schema)?;
        let recorded = "job_recorded($1::text::uuid, $2::text::uuid, $3, $4)::text";
        let rows = match self.call(transaction, &schema, recorded, &[name.as_str()]).await {
            Err(error) if error.code().is_some_and(|code| code.code() == IN_DOUBT) => {
                // The transaction has failed, and locks nothing any more: the store can be asked to stop the job for a person.
                return Err(in_doubt(self, &name).await.into());
            }
            looked => self.recorded(BlockedAction::BeginEffect, looked).await?,
        };
        let found: Option<String> = rows.first().and_then(|row| row.get(0));
        if let Some(value) = found {
            return Ok(serde_json::from_str(&value)?);
        }
        let given = effect(transaction).await?;
        let value = json::written("value of the effect", &given)?;
        let record = "job_once_hashed($1::text::uuid, $2::text::uuid, $3, $4, $5::text::jsonb)::text";
        let recorded = self.call(transaction, &schema, record, &[name.as_str(), &value]).await;
        self.recorded(BlockedAction::RecordEffect, recorded).await?;
        Ok(given)
    }

    /// Has the store record it, on a connection of its own, if this attempt was refused as stale or over: the transaction is rolled back, and
    /// keeps no trace.
    async fn recorded<T>(
        &self,
        action: BlockedAction,
        result: Result<T, tokio_postgres::Error>,
    ) -> Result<T, tokio_postgres::Error> {
        if let Err(error) = &result
            && error.code().is_some_and(|code| STALE.contains(&code.code()))
        {
            self.key_token().record_refusal(action).await;
        }
        result
    }

    /// Calls a function of the schema. Its first arguments are what this attempt is known by: the job, what its hold id is
    /// recognised by (which itself stays here), and its token. The others are text.
    async fn call(
        &self,
        transaction: &mut Transaction<'_>,
        schema: &str,
        function: &str,
        arguments: &[&str],
    ) -> Result<Vec<Row>, tokio_postgres::Error> {
        let attempt = self.attempt_ref();
        let (job, token) = (attempt.job_id.to_string(), as_bigint(attempt.token));
        let hash = super::JobId::from_bytes(*attempt.hold_id.hash().as_bytes()).to_string();
        let mut terms: Vec<(&(dyn ToSql + Sync), Type)> =
            vec![(&job, Type::TEXT), (&hash, Type::TEXT), (&token, Type::INT8)];
        terms.extend(arguments.iter().map(|text| (text as &(dyn ToSql + Sync), Type::TEXT)));
        transaction.query_typed(&format!("SELECT {schema}.{function}"), &terms).await
    }
}
