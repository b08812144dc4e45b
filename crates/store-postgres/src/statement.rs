//! Calls and their statements: how much time they have, what they take, what they return, and how they are sent. A function of the schema is called with plain Rust values, whose
//! types in the database follow from their own.

use std::ops::Deref;
use std::pin::{Pin, pin};
use std::time::Duration;

use fencehold_contract::{CallContext, StoreError};
use fencehold_net::{CallBudget, ResendPolicy};
use futures_util::future::LocalBoxFuture;
use tokio_postgres::types::{FromSql, ToSql, Type};
use tokio_postgres::{Client, Error, GenericClient, Row};

use super::PostgresInner;
use super::fault::StatementError;
use super::pool::{PoolLane, PooledConnection};
use super::value::{Json, Uuid128};

/// What a response may take beyond its caller's timeout, which the server keeps to while it waits for locks: one that is
/// nearly there says more than that none came.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Why a statement has no response.
const LATE: &str = "it was not answered in time";

/// What `lock_timeout` takes.
const LOCK_MS_MAX: i64 = 2_147_483_647;
/// The least that a statement gets, however little time is left: a request that was never sent says nothing to anyone.
const STATEMENT_MIN: Duration = Duration::from_millis(100);

/// A call that is carried out: through which handle, for whom, in how much time, and on which connections.
pub(super) struct Call<'a> {
    pub(super) core: &'a PostgresInner,
    pub(super) about: &'a CallContext,
    pub(super) budget: CallBudget,
    pub(super) lane: PoolLane,
}

impl Deref for Call<'_> {
    type Target = PostgresInner;

    fn deref(&self) -> &PostgresInner {
        self.core
    }
}

/// A type that the database has, too.
pub(super) trait SqlType {
    const TYPE: Type;
}

/// One of which the database has arrays.
pub(super) trait ArrayItem {
    const ARRAY: Type;
}

macro_rules! sql_types {
    ($($rust:ty: $one:ident, $many:ident;)*) => {$(
        impl SqlType for $rust {
            const TYPE: Type = Type::$one;
        }
        impl ArrayItem for $rust {
            const ARRAY: Type = Type::$many;
        }
    )*};
}

sql_types! {
    bool: BOOL, BOOL_ARRAY;
    i16: INT2, INT2_ARRAY;
    i32: INT4, INT4_ARRAY;
    i64: INT8, INT8_ARRAY;
    &str: TEXT, TEXT_ARRAY;
    &[u8]: BYTEA, BYTEA_ARRAY;
    Vec<u8>: BYTEA, BYTEA_ARRAY;
    Uuid128: UUID, UUID_ARRAY;
    Json: JSONB, JSONB_ARRAY;
}

impl<T: SqlType> SqlType for Option<T> {
    const TYPE: Type = T::TYPE;
}

impl<T: ArrayItem> ArrayItem for Option<T> {
    const ARRAY: Type = T::ARRAY;
}

impl<T: ArrayItem> SqlType for Vec<T> {
    const TYPE: Type = T::ARRAY;
}

impl<T: ArrayItem> SqlType for &[T] {
    const TYPE: Type = T::ARRAY;
}

/// A parameter of a statement.
pub(super) trait Parameter: ToSql + Sync {
    fn sql_type(&self) -> Type;
}

impl<T: SqlType + ToSql + Sync> Parameter for T {
    fn sql_type(&self) -> Type {
        T::TYPE
    }
}

/// What a row is read as: its columns, in order, or the row itself.
pub(super) trait FromRow: Sized {
    fn from_row(row: Row) -> Result<Self, Error>;
}

impl FromRow for Row {
    fn from_row(row: Row) -> Result<Self, Error> {
        Ok(row)
    }
}

macro_rules! from_row {
    ($(($($column:ident $nth:literal),+);)*) => {$(
        impl<$($column: for<'a> FromSql<'a>),+> FromRow for ($($column,)+) {
            fn from_row(row: Row) -> Result<Self, Error> {
                Ok(($(row.try_get($nth)?,)+))
            }
        }
    )*};
}

from_row! {
    (A 0);
    (A 0, B 1);
    (A 0, B 1, C 2);
    (A 0, B 1, C 2, D 3);
    (A 0, B 1, C 2, D 3, E 4);
    (A 0, B 1, C 2, D 3, E 4, F 5);
}

/// The rows of a statement, on one connection.
pub(super) async fn query<T: FromRow>(
    client: &impl GenericClient,
    sql: &str,
    parameters: &[&dyn Parameter],
) -> Result<Vec<T>, Error> {
    let typed: Vec<(&(dyn ToSql + Sync), Type)> = parameters
        .iter()
        .map(|parameter| (*parameter as &(dyn ToSql + Sync), parameter.sql_type()))
        .collect();
    read(client.query_typed(sql, &typed).await?)
}

fn read<T: FromRow>(rows: Vec<Row>) -> Result<Vec<T>, Error> {
    rows.into_iter().map(T::from_row).collect()
}

/// The one row of a statement that always returns one.
pub(super) async fn query_one<T: FromRow>(
    client: &impl GenericClient,
    sql: &str,
    parameters: &[&dyn Parameter],
) -> Result<T, Error> {
    Ok(query(client, sql, parameters).await?.swap_remove(0))
}

impl<'a> Call<'a> {
    pub(super) fn namespace(&self) -> &'a str {
        self.about.namespace.as_str()
    }

    /// How long a statement may take.
    fn statement_limit(&self) -> Duration {
        self.budget.left().max(STATEMENT_MIN)
    }

    /// How long a statement may wait for locks: nearly all the time that its caller has, so that the error can name who holds
    /// them.
    pub(super) fn lock_ms(&self) -> i64 {
        let most_ms = self.statement_limit().as_millis() * 9 / 10;
        i64::try_from(most_ms).map_or(LOCK_MS_MAX, |ms| ms.min(LOCK_MS_MAX))
    }

    /// Sends something on a connection of its own, once. Only what differs from caller to caller is compiled for each: the rest takes
    /// most of the code.
    pub(super) async fn send<T>(
        &self,
        work: impl AsyncFnOnce(&mut Client) -> Result<T, Error>,
    ) -> Result<T, StatementError> {
        let mut lent = Box::pin(self.lend_in_time()).await?;
        let mut outcome = None;
        {
            let work = pin!(async { outcome = Some(work(&mut lent.client).await) });
            self.in_time(work).await;
        }
        match outcome {
            Some(Ok(answer)) => {
                lent.give_back();
                Ok(answer)
            }
            Some(Err(error)) => Err(self.failed(lent, &error)),
            None => Err(StatementError::Unclear(LATE.to_owned())),
        }
    }

    async fn lend_in_time(&self) -> Result<PooledConnection, StatementError> {
        let lending = tokio::time::timeout(self.statement_limit(), self.lend(self.lane)).await;
        lending.map_err(|_| StatementError::Unreached(LATE.to_owned()))?
    }

    /// Gives something that was sent the time of a statement.
    async fn in_time(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        let _ = tokio::time::timeout(self.statement_limit() + ANSWER_WITHIN, work).await;
    }

    /// An error of the server leaves the connection as it was; but not one in the middle of a transaction.
    fn failed(&self, lent: PooledConnection, error: &Error) -> StatementError {
        let fault = StatementError::of(error, self.schema());
        if matches!(fault, StatementError::Locked(_)) {
            lent.give_back();
        }
        fault
    }

    /// Sends something until it is answered, or the timeout ends. Each attempt learns how long it may wait for locks: nine
    /// tenths of the time that is left. With the bound of the first attempt, the last one would get no response in time.
    pub(super) async fn run<T>(
        &mut self,
        repeat: ResendPolicy,
        work: impl AsyncFn(&mut Client, i64) -> Result<T, Error>,
    ) -> Result<T, StoreError> {
        loop {
            match self.send(async |client| work(client, self.lock_ms()).await).await {
                Ok(answer) => return Ok(answer),
                Err(fault) => self.retry_or_fail(repeat, fault).await?,
            }
        }
    }

    fn retry_or_fail(
        &mut self,
        repeat: ResendPolicy,
        fault: StatementError,
    ) -> LocalBoxFuture<'_, Result<(), StoreError>> {
        Box::pin(self.budget.retry_or_fail_as(repeat, fault))
    }

    /// The rows of a statement that may be sent again.
    pub(super) async fn rows<T: FromRow>(
        &mut self,
        sql: &str,
        parameters: &[&dyn Parameter],
    ) -> Result<Vec<T>, StoreError> {
        loop {
            match read(self.unread_rows(sql, parameters).await?) {
                Ok(rows) => return Ok(rows),
                Err(error) => {
                    let fault = StatementError::of(&error, self.schema());
                    self.retry_or_fail(ResendPolicy::Safe, fault).await?;
                }
            }
        }
    }

    fn unread_rows<'c>(
        &'c mut self,
        sql: &'c str,
        parameters: &'c [&'c dyn Parameter],
    ) -> LocalBoxFuture<'c, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let sql = self.sql(sql);
            self.run(ResendPolicy::Safe, async |client, _| query(client, &sql, parameters).await)
                .await
        })
    }

    /// The one row of a statement that may be sent again, and always returns one.
    pub(super) async fn row<T: FromRow>(
        &mut self,
        sql: &str,
        parameters: &[&dyn Parameter],
    ) -> Result<T, StoreError> {
        Ok(self.rows(sql, parameters).await?.swap_remove(0))
    }

    /// The same, for what returns nothing.
    pub(super) async fn execute(
        &mut self,
        sql: &str,
        parameters: &[&dyn Parameter],
    ) -> Result<(), StoreError> {
        self.rows::<Row>(sql, parameters).await.map(drop)
    }

    /// Its one value.
    pub(super) async fn value<T: for<'b> FromSql<'b>>(
        &mut self,
        sql: &str,
        parameters: &[&dyn Parameter],
    ) -> Result<T, StoreError> {
        self.row::<(T,)>(sql, parameters).await.map(|(value,)| value)
    }
}
