//! Transactions of diesel-async.

use diesel::pg::Pg;
use diesel::result::{DatabaseErrorKind, Error};
use diesel::row::NamedRow;
use diesel::sql_types::{Nullable, Text};
use diesel_async::{AsyncConnection, AsyncPgConnection, RunQueryDsl as _, TransactionManager as _};

use super::{PostgresTransaction, TransactionError};

/// A connection on which a transaction was begun. Without one it is refused: a fence would end with its own statement.
impl PostgresTransaction for AsyncPgConnection {
    async fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TransactionError> {
        type Manager = <AsyncPgConnection as AsyncConnection>::TransactionManager;
        let status = Manager::transaction_manager_status_mut(self);
        if !matches!(status.transaction_depth(), Ok(Some(_))) {
            return Err(TransactionError::failed("no transaction was begun on this connection"));
        }
        let query = diesel::sql_query(sql).into_boxed::<Pg>();
        let query = parameters.iter().fold(query, |query, text| query.bind::<Text, _>(*text));
        let answer: Result<ResponseRow, Error> = query.get_result(self).await;
        answer.map(|answer| answer.0).map_err(|error| failed(&error))
    }
}

struct ResponseRow(Option<String>);

impl diesel::QueryableByName<Pg> for ResponseRow {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> diesel::deserialize::Result<Self> {
        NamedRow::get::<Nullable<Text>, _>(row, "answer").map(ResponseRow)
    }
}

/// diesel gives no SQLSTATE but for the few that it has a kind of: our functions give theirs as the constraint, too.
fn failed(error: &Error) -> TransactionError {
    let Error::DatabaseError(kind, refused) = error else { return TransactionError::failed(error) };
    let sqlstate = match kind {
        DatabaseErrorKind::UniqueViolation => Some("23505"),
        DatabaseErrorKind::SerializationFailure => Some("40001"),
        DatabaseErrorKind::ReadOnlyTransaction => Some("25006"),
        _ => refused.constraint_name().filter(|name| name.len() == 5),
    };
    match sqlstate {
        Some(sqlstate) => TransactionError::refused(sqlstate, refused.message()),
        None => TransactionError::failed(refused.message()),
    }
}
