//! The caller's own transactions in the PostgreSQL database that has the store: jobs are enqueued there, leases are fenced, effects are had
//! once and jobs are completed there. Either all of it is there with the caller's own writes, or none.
//!
//! | in an open transaction | |
//! |---|---|
//! | [`JobBuilder::enqueue_in`](crate::JobBuilder::enqueue_in), [`JobQueue::enqueue_batch_in`](crate::JobQueue::enqueue_batch_in) | enqueue: an outbox without a table |
//! | [`Lease::fence_in`](crate::Lease::fence_in), [`Job::fence_in`](crate::Job::fence_in), [`KeyToken::fence_in`](crate::fence::KeyToken::fence_in) | refuse a stale holder, and keep the key until the transaction ends |
//! | [`Job::once_in`](crate::Job::once_in) | an effect that every attempt together has once |
//! | [`Job::complete_in`](crate::Job::complete_in) | complete the job |
//!
//! They take a [`PostgresTransaction`]: one of tokio-postgres (feature `tokio-postgres`, which `postgres` has), of sqlx 0.8 (feature `sqlx`), of
//! diesel-async (feature `diesel-async`), or of any other driver by a few lines of yours.
//!
//! The schema is that of the handle's store. Where the handle reaches it through a server, name it:
//! [`FenceholdBuilder::postgres_schema`](crate::FenceholdBuilder::postgres_schema).
//!
//! Deliberately absent: connections. The transaction is the caller's, and so are its commit and its rollback.

#[cfg(feature = "diesel-async")]
mod diesel_async;
mod enqueue;
mod fence;
mod job;
#[cfg(feature = "sqlx")]
mod sqlx;
#[cfg(feature = "tokio-postgres")]
mod tokio_postgres;

use std::fmt;

use fencehold_contract::PostgresUrl;
use fencehold_contract::url::quoted;
use fencehold_core::BadInput;

use crate::connection::ConnectionInner;

/// An open transaction of the caller's in a PostgreSQL database.
///
/// A driver that has no adapter here takes a few lines. The statements are of one shape: every parameter is a text, and the answer is one row of
/// one column, `answer`, which is a text or null.
///
/// ```
/// use fencehold::transaction::{PostgresTransaction, TransactionError};
///
/// # struct Driver;
/// # struct DriverError;
/// # impl DriverError {
/// #     fn code(&self) -> Option<&str> { None }
/// #     fn message(&self) -> &str { "" }
/// # }
/// # impl Driver {
/// #     async fn query_one(&mut self, _: &str, _: &[&str]) -> Result<Vec<Option<String>>, DriverError> { Ok(vec![None]) }
/// # }
/// struct MyTransaction(Driver);
///
/// impl PostgresTransaction for MyTransaction {
///     async fn query_text(&mut self, sql: &str, parameters: &[&str]) -> Result<Option<String>, TransactionError> {
///         match self.0.query_one(sql, parameters).await {
///             Ok(mut row) => Ok(row.remove(0)),
///             // The SQLSTATE tells a stale holder from a lost connection: without it, no refusal is recorded.
///             Err(error) => Err(match error.code() {
///                 Some(sqlstate) => TransactionError::refused(sqlstate, error.message()),
///                 None => TransactionError::failed(error.message()),
///             }),
///         }
///     }
/// }
/// ```
pub trait PostgresTransaction: Send {
    /// Runs one statement in the transaction. `parameters` are its `$1`, `$2`, …, all of the type `text`. It returns one row with one
    /// column, `answer`, of the type `text`.
    fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> impl Future<Output = Result<Option<String>, TransactionError>> + Send;
}

impl<T: PostgresTransaction + ?Sized> PostgresTransaction for &mut T {
    fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> impl Future<Output = Result<Option<String>, TransactionError>> + Send {
        (**self).query_text(sql, parameters)
    }
}

/// Why a statement in the caller's transaction failed. The transaction has failed, too: roll it back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransactionError {
    sqlstate: Option<String>,
    message: String,
}

impl TransactionError {
    /// The database refused the statement, with this SQLSTATE and this message.
    pub fn refused(sqlstate: impl Into<String>, message: impl Into<String>) -> Self {
        TransactionError { sqlstate: Some(sqlstate.into()), message: message.into() }
    }

    /// It failed without an answer of the database: the connection is lost, say.
    pub fn failed(message: impl fmt::Display) -> Self {
        TransactionError { sqlstate: None, message: message.to_string() }
    }

    /// The SQLSTATE, where the database refused the statement.
    pub fn sqlstate(&self) -> Option<&str> {
        self.sqlstate.as_deref()
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.message
    }
}

impl fmt::Display for TransactionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match &self.sqlstate {
            Some(sqlstate) => write!(f, " (SQLSTATE {sqlstate})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TransactionError {}

/// Where the functions are unless a handle, or the caller, says otherwise.
const SCHEMA: &str = "fencehold";

/// The schema of a handle's store, as it stands in a statement.
fn schema_of(connection: &ConnectionInner) -> Result<String, BadInput> {
    let named = connection
        .postgres_schema
        .as_deref()
        .or_else(|| connection.store.postgres_schema());
    named.map(quoted).ok_or_else(|| {
        let store = connection.store.capabilities().store;
        let problem = format!(
            "is {store}, which is in no database of yours; a transaction needs a store in PostgreSQL, or, where a server is between, \
             `FenceholdBuilder::postgres_schema`"
        );
        BadInput::new("store", problem)
    })
}

/// Checks the name of a schema that the caller gives.
pub(crate) fn check_schema(schema: &str) -> Result<(), BadInput> {
    if PostgresUrl::is_schema(schema) {
        return Ok(());
    }
    Err(BadInput::new("schema", "is not a name that a store's URL can have"))
}
