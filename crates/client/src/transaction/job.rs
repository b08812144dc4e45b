//! A job's end and its effects in the caller's transaction, where its work is in the same PostgreSQL database as the job.

use fencehold_core::job::EffectName;
use fencehold_core::{BadInput, BlockedAction};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::fence::refused;
use super::{PostgresTransaction, TransactionError, schema_of};
use crate::fence::FenceError;
use crate::job::{AttemptReporter, Job, JobError, JobId};
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
    /// # #[cfg(feature = "tokio-postgres")]
    /// # mod example {
    /// use fencehold::{Job, JobError, Outcome};
    ///
    /// async fn charge(job: Job, database: &mut tokio_postgres::Client, cents: i64) -> Result<Outcome, JobError> {
    ///     let mut transaction = database.transaction().await?;
    ///     transaction.execute("UPDATE account SET balance = balance - $1 WHERE id = 7", &[&cents]).await?;
    ///     job.complete_in(&mut transaction, &cents).await?;
    ///     transaction.commit().await?;
    ///     Outcome::complete(&cents)
    /// }
    /// # }
    /// ```
    ///
    /// A stale attempt is refused, and so is one whose claim ran out and was noted: roll back.
    pub async fn complete_in<T: PostgresTransaction + ?Sized, R: Serialize + ?Sized>(
        &self,
        transaction: &mut T,
        result: &R,
    ) -> Result<(), JobError> {
        let result = json::written("result", result)?;
        let function = "job_complete_hashed($1::text::uuid, $2::text::uuid, $3::text::bigint, $4::text)";
        let completed = self.call(transaction, function, &[&result]).await;
        self.recorded(BlockedAction::Complete, completed).await?;
        Ok(())
    }

    /// Has an effect once, in this transaction: if it is recorded already, its stored value is returned and `effect` does not
    /// run. Otherwise it runs with the transaction, and what it gives is recorded there: once it commits, both are there.
    ///
    /// ```no_run
    /// # #[cfg(feature = "tokio-postgres")]
    /// # mod example {
    /// use fencehold::{Job, JobError};
    /// use tokio_postgres::Transaction;
    ///
    /// async fn charge(job: Job, database: &mut tokio_postgres::Client, cents: i64) -> Result<String, JobError> {
    ///     let mut transaction = database.transaction().await?;
    ///     let charge = async |transaction: &mut Transaction<'_>| {
    ///         let sql = "UPDATE account SET balance = balance - $1 WHERE id = 7 RETURNING receipt";
    ///         Ok(transaction.query_one(sql, &[&cents]).await?.get(0))
    ///     };
    ///     let receipt = job.once_in(&mut transaction, "charge", charge).await?;
    ///     transaction.commit().await?;
    ///     Ok(receipt)
    /// }
    /// # fn is_handler(job: Job, database: &mut tokio_postgres::Client) -> impl Future + Send { charge(job, database, 1) }
    /// # }
    /// ```
    ///
    /// Where the type of the transaction has a lifetime, the closure gets a name first, as here: otherwise the compiler says of the handler that
    /// `AsyncFnOnce` is not general enough. With `&mut *transaction` of sqlx, and with diesel-async, it can stand in its place.
    ///
    /// A stale attempt is refused before its effect runs, and so is one whose claim has run out. Where an earlier attempt announced the
    /// effect ([`once_with_intent`](Job::once_with_intent)) and a person must look, the job stops.
    pub async fn once_in<T: PostgresTransaction + ?Sized, R: Serialize + DeserializeOwned>(
        &self,
        transaction: &mut T,
        name: impl AsRef<str>,
        effect: impl AsyncFnOnce(&mut T) -> Result<R, JobError>,
    ) -> Result<R, JobError> {
        let name = EffectName::new(name.as_ref())?;
        let recorded = "job_recorded($1::text::uuid, $2::text::uuid, $3::text::bigint, $4::text)";
        let found = match self.call(transaction, recorded, &[name.as_str()]).await {
            Err(error) if error.sqlstate() == Some(IN_DOUBT) => {
                // The transaction has failed, and locks nothing any more: the store can be asked to stop the job for a person.
                return Err(in_doubt(self, &name).await.into());
            }
            looked => self.recorded(BlockedAction::BeginEffect, looked).await?,
        };
        if let Some(value) = found {
            return Ok(serde_json::from_str(&value)?);
        }
        let given = effect(transaction).await?;
        let value = json::written("value of the effect", &given)?;
        let record =
            "job_once_hashed($1::text::uuid, $2::text::uuid, $3::text::bigint, $4::text, $5::text::jsonb)";
        let recorded = self.call(transaction, record, &[name.as_str(), &value]).await;
        self.recorded(BlockedAction::RecordEffect, recorded).await?;
        Ok(given)
    }

    /// Lets a transaction go on only while this attempt is the job's newest and has not ended, and keeps it so to the end of the
    /// transaction. [`once_in`](Job::once_in) and [`complete_in`](Job::complete_in) do it themselves.
    pub async fn fence_in<T: PostgresTransaction + ?Sized>(
        &self,
        transaction: &mut T,
    ) -> Result<(), FenceError> {
        let pass = self.key_token();
        let schema = self.schema().map_err(FenceError::BadInput)?;
        let sql = format!("SELECT {schema}.fence_job($1::text::uuid, $2::text::bigint)::text AS answer");
        let (job, token) = (self.id().to_string(), self.token().to_string());
        let fenced = transaction.query_text(&sql, &[&job, &token]).await;
        pass.recorded(fenced.map(drop).map_err(|error| refused(&schema, &pass, &error)))
            .await
    }

    /// Has the store record it, on a connection of its own, if this attempt was refused as stale or over: the transaction is rolled back, and
    /// keeps no trace.
    async fn recorded<V>(
        &self,
        action: BlockedAction,
        result: Result<V, TransactionError>,
    ) -> Result<V, TransactionError> {
        if let Err(error) = &result
            && error.sqlstate().is_some_and(|sqlstate| STALE.contains(&sqlstate))
        {
            self.key_token().record_refusal(action).await;
        }
        result
    }

    /// Calls a function of the schema. Its first arguments are what this attempt is known by: the job, what its hold id is
    /// recognised by (which itself stays here), and its token.
    async fn call<T: PostgresTransaction + ?Sized>(
        &self,
        transaction: &mut T,
        function: &str,
        arguments: &[&str],
    ) -> Result<Option<String>, TransactionError> {
        let attempt = self.attempt_ref();
        let (job, token) = (attempt.job_id.to_string(), attempt.token.to_string());
        let hash = JobId::from_bytes(*attempt.hold_id.hash().as_bytes()).to_string();
        let schema = self.schema().map_err(TransactionError::failed)?;
        let sql = format!("SELECT {schema}.{function}::text AS answer");
        transaction
            .query_text(&sql, &[&[&*job, &*hash, &*token], arguments].concat())
            .await
    }

    /// The schema of its store.
    fn schema(&self) -> Result<String, BadInput> {
        match &self.attempt.reporter {
            AttemptReporter::Store(handle) => schema_of(&handle.connection),
            AttemptReporter::Kit(_) => {
                Err(BadInput::new("store", "is the test kit's, which has no transactions"))
            }
        }
    }
}
