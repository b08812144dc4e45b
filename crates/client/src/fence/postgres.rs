//! The fence for transactions of one's own, where what a lease protects is in the same PostgreSQL database as the lease.
//!
//! Check and write are one transaction: until it ends, no one is granted the key, and its holder's renewals go on. It
//! passes under the newest token, also when the lease has run out, as long as no other holder has taken the key since.
//!
//! Deliberately absent: connections. The transaction is the caller's, and so are its commit and its rollback.

use fencehold_contract::PostgresUrl;
use fencehold_core::limits::TOKEN_MAX;
use fencehold_core::{BadInput, Token};
use tokio_postgres::Transaction;
use tokio_postgres::types::{ToSql, Type};

use super::error::FenceError;
use super::key_token::KeyToken;
use super::mark::Mark;

/// Where the functions are, unless they were put elsewhere.
pub(crate) const SCHEMA: &str = "fencehold";

/// Lets a transaction go on only while its holder is the newest, and keeps it so to the end of the transaction.
///
/// ```no_run
/// # async fn example(client: &mut tokio_postgres::Client, lease: &fencehold::Lease) -> Result<(), Box<dyn std::error::Error>> {
/// let mut transaction = client.transaction().await?;
/// fencehold::fence::postgres(&mut transaction, lease).await?;
/// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// Once it was refused, the transaction is of no more use: roll it back, by dropping it. The refusal is recorded in the lease's store, on
/// its own connection: `fencehold explain` shows it as a stale write. A transaction that is left open
/// and idle under a fence is ended by the server after five minutes (the setting `fencehold.fence_idle_timeout_ms`).
pub async fn postgres(
    transaction: &mut Transaction<'_>,
    pass: impl Into<KeyToken>,
) -> Result<(), FenceError> {
    postgres_in_schema(SCHEMA, transaction, pass).await
}

/// The same where the store's URL names another schema.
pub async fn postgres_in_schema(
    schema: &str,
    transaction: &mut Transaction<'_>,
    pass: impl Into<KeyToken>,
) -> Result<(), FenceError> {
    let pass = pass.into();
    pass.check()?;
    let sql = format!("SELECT {}.fence($1, $2, $3)", quoted(schema)?);
    let (key, namespace, token) = (pass.key.as_str(), pass.namespace.as_str(), as_bigint(pass.token));
    let terms: [(&(dyn ToSql + Sync), Type); 3] =
        [(&key, Type::TEXT), (&token, Type::INT8), (&namespace, Type::TEXT)];
    let fenced = transaction.query_typed(&sql, &terms).await;
    // The transaction has failed, and locks nothing any more.
    pass.recorded(fenced.map(drop).map_err(|error| refused(schema, &pass, &error)))
        .await
}

/// The name of a schema in a statement: it may be a word of the language.
pub(crate) fn quoted(schema: &str) -> Result<String, BadInput> {
    if PostgresUrl::is_schema(schema) {
        return Ok(format!("\"{schema}\""));
    }
    Err(BadInput::new("schema", "is not a name that a store's URL can have"))
}

pub(crate) fn as_bigint(token: Token) -> i64 {
    i64::try_from(token.get().min(TOKEN_MAX)).unwrap_or(i64::MAX)
}

fn refused(schema: &str, pass: &KeyToken, error: &tokio_postgres::Error) -> FenceError {
    let resource = format!("the fence of the schema {schema}");
    let Some(said) = error.as_db_error() else {
        return FenceError::unknown(resource, error);
    };
    let message = said.message().to_owned();
    match said.code().code() {
        "FH001" => {
            // The newest token is the last word of what is said.
            let newest = message.rsplit(' ').next().and_then(|number| number.parse().ok());
            let mark = Mark { token: Token::new(newest.unwrap_or(pass.token.get())), raised_by: None };
            FenceError::stale(&resource, pass, &mark)
        }
        "FH002" => FenceError::Ended { resource, key: pass.key.clone(), token: pass.token, message },
        _ => FenceError::Unusable { resource, message },
    }
}
