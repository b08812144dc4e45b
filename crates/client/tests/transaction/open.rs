//! One open transaction, by each of the adapters.

use diesel_async::{AsyncConnection as _, AsyncPgConnection, TransactionManager as _};
use fencehold::JobError;
use fencehold::transaction::{PostgresTransaction, TransactionError};
use serde::{Deserialize, Serialize};
use sqlx_core::connection::Connection as _;
use sqlx_postgres::{PgConnection, Postgres};

type Manager = <AsyncPgConnection as diesel_async::AsyncConnection>::TransactionManager;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Adapter {
    TokioPostgres,
    Sqlx,
    DieselAsync,
}

impl Adapter {
    pub(super) const ALL: [Adapter; 3] = [Adapter::TokioPostgres, Adapter::Sqlx, Adapter::DieselAsync];

    pub(super) async fn connect(self, url: &str) -> Connection {
        match self {
            Adapter::TokioPostgres => {
                let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.unwrap();
                tokio::spawn(connection);
                Connection::TokioPostgres(Box::new(client))
            }
            Adapter::Sqlx => Connection::Sqlx(Box::new(PgConnection::connect(url).await.unwrap())),
            Adapter::DieselAsync => {
                Connection::DieselAsync(Box::new(AsyncPgConnection::establish(url).await.unwrap()))
            }
        }
    }
}

pub(super) enum Connection {
    TokioPostgres(Box<tokio_postgres::Client>),
    Sqlx(Box<PgConnection>),
    DieselAsync(Box<AsyncPgConnection>),
}

impl Connection {
    pub(super) async fn begin(&mut self) -> Open<'_> {
        match self {
            Connection::TokioPostgres(client) => Open::TokioPostgres(client.transaction().await.unwrap()),
            Connection::Sqlx(connection) => Open::Sqlx(connection.begin().await.unwrap()),
            Connection::DieselAsync(connection) => {
                Manager::begin_transaction(&mut **connection).await.unwrap();
                Open::DieselAsync(connection)
            }
        }
    }
}

/// A transaction that is not committed is rolled back.
pub(super) enum Open<'a> {
    TokioPostgres(tokio_postgres::Transaction<'a>),
    Sqlx(sqlx_core::transaction::Transaction<'a, Postgres>),
    DieselAsync(&'a mut AsyncPgConnection),
}

impl Open<'_> {
    /// A write of the user's own.
    pub(super) async fn execute(&mut self, sql: &str) -> Result<(), JobError> {
        match self {
            Open::TokioPostgres(transaction) => {
                transaction.execute(sql, &[]).await?;
            }
            Open::Sqlx(transaction) => {
                sqlx_core::query::query(sql).execute(&mut **transaction).await?;
            }
            Open::DieselAsync(connection) => {
                diesel_async::RunQueryDsl::execute(diesel::sql_query(sql), &mut **connection).await?;
            }
        }
        Ok(())
    }

    pub(super) async fn commit(self) {
        match self {
            Open::TokioPostgres(transaction) => transaction.commit().await.unwrap(),
            Open::Sqlx(transaction) => transaction.commit().await.unwrap(),
            Open::DieselAsync(connection) => Manager::commit_transaction(connection).await.unwrap(),
        }
    }

    pub(super) async fn roll_back(self) {
        match self {
            Open::TokioPostgres(transaction) => transaction.rollback().await.unwrap(),
            Open::Sqlx(transaction) => transaction.rollback().await.unwrap(),
            Open::DieselAsync(connection) => Manager::rollback_transaction(connection).await.unwrap(),
        }
    }
}

impl PostgresTransaction for Open<'_> {
    async fn query_text(
        &mut self,
        sql: &str,
        parameters: &[&str],
    ) -> Result<Option<String>, TransactionError> {
        match self {
            Open::TokioPostgres(transaction) => transaction.query_text(sql, parameters).await,
            Open::Sqlx(transaction) => transaction.query_text(sql, parameters).await,
            Open::DieselAsync(connection) => connection.query_text(sql, parameters).await,
        }
    }
}
