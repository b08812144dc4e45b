//! A shop on axum, sqlx and PostgreSQL. `POST /orders` writes the order and enqueues its job in one transaction: an outbox without a table.
//! The job takes the pieces out of stock and completes in one transaction, too: exactly once, at whatever moment a process is killed.
//!
//! ```sh
//! export DATABASE_URL=postgres://localhost/shop
//! cargo run -p orders &
//! curl -i localhost:8080/orders -H 'content-type: application/json' -d '{"item":"lamp","pieces":2}'
//! curl localhost:8080/orders/1
//! ```

#[cfg(test)]
mod tests;

use std::env;
use std::time::Duration;

use anyhow::Context as _;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use fencehold::{Fencehold, Job, JobId, TypedJob, Worker};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use tokio::signal::unix::{SignalKind, signal};

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS item (name text PRIMARY KEY, pieces bigint NOT NULL CHECK (pieces >= 0));
    INSERT INTO item VALUES ('lamp', 100) ON CONFLICT DO NOTHING;
    CREATE TABLE IF NOT EXISTS customer_order (
        id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        item text NOT NULL REFERENCES item,
        pieces bigint NOT NULL CHECK (pieces > 0),
        state text NOT NULL DEFAULT 'placed'
    );";

/// What requests and jobs need.
#[derive(Clone)]
struct App {
    fh: Fencehold,
    pool: PgPool,
}

#[derive(Serialize, Deserialize)]
struct NewOrder {
    item: String,
    pieces: i64,
}

#[derive(Serialize, Deserialize)]
struct PlacedOrder {
    order: i64,
    job: JobId,
}

/// The job that takes the pieces of an order out of stock.
#[derive(Serialize, Deserialize)]
struct Reserve {
    order: i64,
}

impl TypedJob for Reserve {
    const KIND: &'static str = "reserve";
    type Result = String;
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let database = env::var("DATABASE_URL").context("DATABASE_URL names no database")?;
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:8080".to_owned());
    let app = connect(&database).await?;
    let listener = tokio::net::TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);

    let serve = axum::serve(listener, router(app.clone())).with_graceful_shutdown(stop_signal());
    let work = worker(&app).run_until(stop_signal());
    let serve = async { serve.await.map_err(anyhow::Error::from) };
    let ((), drained) = tokio::try_join!(serve, async { work.await.map_err(anyhow::Error::from) })?;
    println!("{} orders were worked on", drained.finished);
    app.fh.close().await;
    Ok(())
}

/// The store is in the application's database, in a schema of its own.
async fn connect(database: &str) -> anyhow::Result<App> {
    let app = App { fh: Fencehold::connect(database).await?, pool: PgPool::connect(database).await? };
    let mut setup = app.pool.begin().await?;
    sqlx::query("SELECT pg_advisory_xact_lock(1)").execute(&mut *setup).await?;
    sqlx::raw_sql(TABLES).execute(&mut *setup).await?;
    setup.commit().await?;
    Ok(app)
}

fn router(app: App) -> Router {
    Router::new()
        .route("/orders", post(place))
        .route("/orders/{order}", get(order_state))
        .with_state(app)
}

/// Both the order and its job are there once this commits, or neither.
async fn place(
    State(app): State<App>,
    Json(new): Json<NewOrder>,
) -> Result<(StatusCode, Json<PlacedOrder>), Failed> {
    let mut transaction = app.pool.begin().await?;
    let insert = "INSERT INTO customer_order (item, pieces) VALUES ($1, $2) RETURNING id";
    let insert = sqlx::query_scalar(insert).bind(&new.item).bind(new.pieces);
    let order = insert.fetch_one(&mut *transaction).await?;
    let job = app.fh.queue("orders").typed_job(&Reserve { order });
    let job = job.enqueue_in(&mut transaction).await?.id();
    transaction.commit().await?;
    Ok((StatusCode::ACCEPTED, Json(PlacedOrder { order, job })))
}

async fn order_state(State(app): State<App>, Path(order): Path<i64>) -> Result<Json<String>, Failed> {
    let state = sqlx::query_scalar("SELECT state FROM customer_order WHERE id = $1").bind(order);
    Ok(Json(state.fetch_one(&app.pool).await?))
}

fn worker(app: &App) -> Worker {
    // If this process is killed, another takes its jobs up after the ttl.
    let worker = app.fh.worker().queue("orders").ttl(Duration::from_secs(5));
    worker.state(app.clone()).handle_typed(reserve)
}

/// What it changes and its end are one transaction. An attempt whose time ran out is refused in it, and changes nothing.
async fn reserve(
    job: Job,
    order: Reserve,
    fencehold::State(app): fencehold::State<App>,
) -> anyhow::Result<String> {
    let mut transaction = app.pool.begin().await?;
    let take = "UPDATE item SET pieces = item.pieces - o.pieces FROM customer_order o
                WHERE o.id = $1 AND item.name = o.item AND item.pieces >= o.pieces";
    let taken = sqlx::query(take).bind(order.order).execute(&mut *transaction).await?;
    let state = if taken.rows_affected() == 1 { "reserved" } else { "out of stock" };
    let update = sqlx::query("UPDATE customer_order SET state = $1 WHERE id = $2")
        .bind(state)
        .bind(order.order);
    update.execute(&mut *transaction).await?;
    job.complete_in(&mut transaction, state)
        .await
        .map_err(fencehold::JobError::into_error)?;
    transaction.commit().await?;
    Ok(state.to_owned())
}

/// A response for what went wrong.
struct Failed(StatusCode, String);

impl axum::response::IntoResponse for Failed {
    fn into_response(self) -> axum::response::Response {
        (self.0, self.1).into_response()
    }
}

impl From<sqlx::Error> for Failed {
    fn from(error: sqlx::Error) -> Self {
        let refused = error.as_database_error();
        let status = match &error {
            sqlx::Error::RowNotFound => StatusCode::NOT_FOUND,
            _ if refused.is_some_and(|refused| {
                refused.is_foreign_key_violation() || refused.is_check_violation()
            }) =>
            {
                StatusCode::UNPROCESSABLE_ENTITY
            }
            _ => StatusCode::SERVICE_UNAVAILABLE,
        };
        Failed(status, error.to_string())
    }
}

impl From<fencehold::Error> for Failed {
    fn from(error: fencehold::Error) -> Self {
        Failed(StatusCode::SERVICE_UNAVAILABLE, error.to_string())
    }
}

/// SIGTERM or Ctrl-C.
async fn stop_signal() {
    let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
    tokio::select! {
        _ = terminate.recv() => {}
        _ = tokio::signal::ctrl_c() => {}
    }
}
