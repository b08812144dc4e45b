//! A plain table: what one INSERT of the same bytes costs, and what a snapshot does that stays open.

use std::io::Read as _;

use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

use crate::Failed;
use crate::load::{Done, Peer, Settings};

const CONNECTIONS: u32 = 66;

#[derive(Clone)]
pub(crate) struct Plain {
    pool: PgPool,
}

impl Plain {
    pub(crate) async fn new(url: &str) -> Result<Self, Failed> {
        crate::load::forget_schema(url, "plain").await?;
        let pool = PgPoolOptions::new().max_connections(CONNECTIONS).connect(url).await?;
        sqlx::query("CREATE SCHEMA plain").execute(&pool).await?;
        let table = "CREATE TABLE plain.job (nth bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, payload text NOT NULL)";
        sqlx::query(table).execute(&pool).await?;
        Ok(Plain { pool })
    }
}

impl Peer for Plain {
    async fn bulk(&self, payloads: Vec<String>) -> Result<(), Failed> {
        sqlx::query("INSERT INTO plain.job (payload) SELECT unnest($1::text[])")
            .bind(payloads)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn one(&self, nth: String) -> Result<(), Failed> {
        sqlx::query("INSERT INTO plain.job (payload) VALUES ($1)")
            .bind(format!("{{\"nth\":\"{nth}\"}}"))
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn work(&self, _: Settings, _: Done) -> Result<impl Sized, Failed> {
        Err::<(), _>("a plain table has no worker".into())
    }
}

/// Holds a snapshot until standard input ends. Says so once it is held.
pub(crate) async fn hold_snapshot(url: &str) -> Result<(), Failed> {
    let pool = PgPool::connect(url).await?;
    let mut session = pool.acquire().await?;
    sqlx::query("BEGIN ISOLATION LEVEL REPEATABLE READ")
        .execute(&mut *session)
        .await?;
    sqlx::query("SELECT count(*) FROM pg_class").execute(&mut *session).await?;
    println!("held");
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
