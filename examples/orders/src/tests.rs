//! On a real database, which `DATABASE_URL` names: each test makes one of its own there. Requests go straight to the router.

use std::future::pending;

use axum::body::{Body, to_bytes};
use axum::http::Request;
use sqlx::Executor as _;
use tower::ServiceExt;

use super::*;

/// The service on a new database.
async fn app(name: &str) -> anyhow::Result<App> {
    let server = env::var("DATABASE_URL").context("DATABASE_URL names no database")?;
    let admin = PgPool::connect(&server).await?;
    admin
        .execute(format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)").as_str())
        .await?;
    admin.execute(format!("CREATE DATABASE {name}").as_str()).await?;
    let (server, _) = server.rsplit_once('/').context("a URL ends in the name of a database")?;
    connect(&format!("{server}/{name}")).await
}

async fn order(app: &App, item: &str, pieces: i64) -> anyhow::Result<(StatusCode, String)> {
    let body = serde_json::to_vec(&NewOrder { item: item.to_owned(), pieces })?;
    let request = Request::post("/orders")
        .header("content-type", "application/json")
        .body(Body::from(body))?;
    let response = router(app.clone()).oneshot(request).await?;
    let status = response.status();
    let body = to_bytes(response.into_body(), usize::MAX).await?;
    Ok((status, String::from_utf8(body.into())?))
}

async fn left(app: &App) -> anyhow::Result<i64> {
    Ok(sqlx::query_scalar("SELECT pieces FROM item WHERE name = 'lamp'")
        .fetch_one(&app.pool)
        .await?)
}

#[tokio::test]
async fn an_order_and_its_job_are_there_together() -> anyhow::Result<()> {
    let app = app("orders_together").await?;
    let (status, body) = order(&app, "lamp", 30).await?;
    assert_eq!(status, StatusCode::ACCEPTED);
    let placed: PlacedOrder = serde_json::from_str(&body)?;

    worker(&app).until_empty().run_until(pending::<()>()).await?;
    let reserved = app.fh.jobs().typed::<Reserve>(placed.job).result(Duration::ZERO).await?;
    assert_eq!((reserved.as_str(), left(&app).await?), ("reserved", 70));
    assert_eq!(order(&app, "lamp", 71).await?.0, StatusCode::ACCEPTED);
    worker(&app).until_empty().run_until(pending::<()>()).await?;
    let Json(state) = order_state(State(app.clone()), Path(placed.order + 1))
        .await
        .map_err(|failed| anyhow::anyhow!(failed.1))?;
    assert_eq!((state.as_str(), left(&app).await?), ("out of stock", 70));
    Ok(())
}

#[tokio::test]
async fn an_order_that_is_refused_leaves_no_job() -> anyhow::Result<()> {
    let app = app("orders_refused").await?;
    assert_eq!(order(&app, "piano", 1).await?.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(order(&app, "lamp", -1).await?.0, StatusCode::UNPROCESSABLE_ENTITY);
    assert_eq!(app.fh.queue("orders").counts().await?.queued, 0);
    Ok(())
}

/// A worker that stalls in the middle of its transaction: another attempt does the job, and the first one changes nothing.
#[tokio::test]
async fn a_late_attempt_takes_nothing_out_of_stock() -> anyhow::Result<()> {
    let app = app("orders_late").await?;
    let placed: PlacedOrder = serde_json::from_str(&order(&app, "lamp", 30).await?.1)?;

    // The item is locked, so the first attempt waits in its transaction.
    let mut lock = app.pool.begin().await?;
    sqlx::query("SELECT FROM item FOR NO KEY UPDATE").execute(&mut *lock).await?;
    let working = worker(&app).start()?;
    let waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    while sqlx::query_scalar::<_, i64>(waits).fetch_one(&app.pool).await? == 0 {}

    // An operator takes the job away from it, and has it begin anew.
    let jobs = app.fh.jobs();
    jobs.force_cancel(placed.job, None).await?;
    jobs.retry(placed.job).await?;
    lock.commit().await?;
    assert_eq!(jobs.typed::<Reserve>(placed.job).result(Duration::from_secs(30)).await?, "reserved");
    working.drain().await?;
    assert_eq!(left(&app).await?, 70, "once");
    Ok(())
}
