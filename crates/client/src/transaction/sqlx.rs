//! Transactions of sqlx 0.8.
//!
//! By `sqlx-core` and `sqlx-postgres`, of which `sqlx` is made: `sqlx` itself would have every program resolve `sqlx-sqlite`, whose SQLite is
//! another than ours.

use sqlx_core::connection::Connection as _;
use sqlx_core::error::Error;
use sqlx_core::query_scalar::query_scalar;
use sqlx_core::transaction::Transaction;
use sqlx_postgres::{PgConnection, Postgres};

use super::{PostgresTransaction, TransactionError};

impl PostgresTransaction for Transaction<'_, Postgres> {
    async fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TransactionError> {
        (**self).query_text(sql, parameters).await
    }
}

/// A connection on which a transaction was begun. Without one it is refused: a fence would end with its own statement.
impl PostgresTransaction for PgConnection {
    async fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TransactionError> {
        if !self.is_in_transaction() {
            return Err(TransactionError::failed("no transaction was begun on this connection"));
        }
        let query = query_scalar::<Postgres, Option<String>>(sql);
        let query = parameters.iter().fold(query, |query, text| query.bind(*text));
        query.fetch_one(self).await.map_err(|error| failed(&error))
    }
}

fn failed(error: &Error) -> TransactionError {
    match error.as_database_error().map(|refused| (refused.code(), refused.message())) {
        Some((Some(sqlstate), message)) => TransactionError::refused(sqlstate, message),
        _ => TransactionError::failed(error),
    }
}
