//! The fence for what a lease protects in the same PostgreSQL database.
//!
//! Check and write are one transaction: until it ends, no one is granted the key, and its holder's renewals go on. It passes under the newest
//! token, also when the lease has run out, as long as no other holder has taken the key since.

use fencehold_contract::url::quoted;
use fencehold_core::Token;

use super::{PostgresTransaction, SCHEMA, TransactionError, check_schema, schema_of};
use crate::fence::{FenceError, KeyToken, Mark};
use crate::guard::Lease;

impl Lease {
    /// Lets a transaction go on only while this holder is the newest, and keeps it so to the end of the transaction.
    ///
    /// ```no_run
    /// # #[cfg(feature = "tokio-postgres")]
    /// # async fn example(database: &mut tokio_postgres::Client, lease: &fencehold::Lease) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut transaction = database.transaction().await?;
    /// lease.fence_in(&mut transaction).await?;
    /// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 7", &[]).await?;
    /// transaction.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Once it was refused, roll the transaction back. The refusal is recorded in the lease's store, on its own connection:
    /// `fencehold explain` shows it as a stale write. A transaction that is left open and idle under a fence is ended by the server after
    /// five minutes (the setting `fencehold.fence_idle_timeout_ms`).
    pub async fn fence_in<T: PostgresTransaction + ?Sized>(
        &self,
        transaction: &mut T,
    ) -> Result<(), FenceError> {
        self.key_token().fence_in(transaction).await
    }
}

impl KeyToken {
    /// As [`Lease::fence_in`], for code that was only handed a key and a token, such as a command under `fencehold run`.
    ///
    /// ```no_run
    /// # #[cfg(feature = "tokio-postgres")]
    /// # async fn example(transaction: &mut tokio_postgres::Transaction<'_>) -> Result<(), Box<dyn std::error::Error>> {
    /// use fencehold::fence::KeyToken;
    /// use fencehold::{Key, Token};
    ///
    /// let pass = KeyToken::new(Key::new("reports/daily")?, Token::new(33));
    /// pass.in_schema("leases").fence_in(transaction).await?; // without a name: the schema `fencehold`
    /// # Ok(())
    /// # }
    /// ```
    pub async fn fence_in<T: PostgresTransaction + ?Sized>(
        &self,
        transaction: &mut T,
    ) -> Result<(), FenceError> {
        self.check()?;
        let schema = match (&self.schema, self.holder()) {
            (Some(schema), _) => {
                check_schema(schema)?;
                quoted(schema)
            }
            (None, Some(holder)) => schema_of(&holder.connection)?,
            (None, None) => quoted(SCHEMA),
        };
        let sql = format!("SELECT {schema}.fence($1::text, $2::text::bigint, $3::text)::text AS answer");
        let (key, token) = (self.key.as_str(), self.token.to_string());
        let fenced = transaction.query_text(&sql, &[key, &token, self.namespace.as_str()]).await;
        // The transaction has failed, and locks nothing any more.
        self.recorded(fenced.map(drop).map_err(|error| refused(&schema, self, &error)))
            .await
    }
}

pub(super) fn refused(schema: &str, pass: &KeyToken, error: &TransactionError) -> FenceError {
    let resource = format!("the fence of the schema {}", schema.trim_matches('"'));
    let message = error.message().to_owned();
    match error.sqlstate() {
        Some("FH001") => {
            // The newest token is the last word of what is said.
            let newest = message.rsplit(' ').next().and_then(|number| number.parse().ok());
            let mark = Mark { token: Token::new(newest.unwrap_or(pass.token.get())), raised_by: None };
            FenceError::stale(&resource, pass, &mark)
        }
        Some("FH002") => FenceError::Ended { resource, key: pass.key.clone(), token: pass.token, message },
        Some(_) => FenceError::Unusable { resource, message: error.to_string() },
        None => FenceError::Unknown { resource, message },
    }
}
