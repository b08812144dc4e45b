//! Whole processes on one database: one is killed in the middle of its transactions, and the other goes on.

use std::env;

use process::Service;
use sqlx::{Connection as _, Executor as _, PgConnection};

#[tokio::test]
async fn each_order_is_carried_out_once_when_a_process_is_killed() -> Result<(), sqlx::Error> {
    let server = env::var("DATABASE_URL").expect("DATABASE_URL names a database");
    let mut admin = PgConnection::connect(&server).await?;
    admin.execute("DROP DATABASE IF EXISTS orders_killed WITH (FORCE)").await?;
    admin.execute("CREATE DATABASE orders_killed").await?;
    let (server, _) = server.rsplit_once('/').expect("a URL ends in the name of a database");
    let database = format!("{server}/orders_killed");
    let start = || Service::start(env!("CARGO_BIN_EXE_orders"), &[("DATABASE_URL", &database)]);
    let killed = start();

    // While the item is locked, every job that has begun waits in its transaction.
    let (mut test, mut looks) =
        (PgConnection::connect(&database).await?, PgConnection::connect(&database).await?);
    let mut lock = test.begin().await?;
    lock.execute("SELECT FROM item FOR NO KEY UPDATE").await?;
    for _ in 0..10 {
        let (status, answer) = killed.ask("POST", "/orders", "accept: */*", r#"{"item":"lamp","pieces":3}"#);
        assert_eq!(status, 202, "{answer}");
    }
    let mut count = async |sql: &str| sqlx::query_scalar::<_, i64>(sql).fetch_one(&mut looks).await;
    while count("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'").await? == 0 {}
    let other = start();
    killed.kill();
    lock.commit().await?;

    while count("SELECT count(*) FROM customer_order WHERE state = 'placed'").await? > 0 {}
    assert_eq!(count("SELECT count(*) FROM customer_order WHERE state = 'reserved'").await?, 10);
    assert_eq!(count("SELECT pieces FROM item").await?, 100 - 10 * 3);
    assert!(other.stop().success());
    Ok(())
}
