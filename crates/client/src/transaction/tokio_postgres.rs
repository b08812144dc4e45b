//! Transactions of tokio-postgres.

use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use super::{PostgresTransaction, TransactionError};

impl PostgresTransaction for Transaction<'_> {
    async fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TransactionError> {
        let typed = parameters.iter().map(|text| (text as &(dyn ToSql + Sync), Type::TEXT));
        let rows = self
            .query_typed(sql, &typed.collect::<Vec<_>>())
            .await
            .map_err(|error| failed(&error))?;
        let answer = rows.first().map(|row| row.try_get(0));
        answer.transpose().map(Option::flatten).map_err(|error| failed(&error))
    }
}

fn failed(error: &tokio_postgres::Error) -> TransactionError {
    match error.as_db_error() {
        Some(refused) => TransactionError::refused(refused.code().code(), refused.message()),
        None => TransactionError::failed(error),
    }
}
