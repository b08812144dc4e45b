//! A fence inside a transaction of one's own, through the library.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

#[path = "../../store/tests/postgres/cluster.rs"]
mod cluster;

use std::time::Duration;

use cluster::{Cluster, Durable};
use fencehold::fence::{self, FenceError, Pass};
use fencehold::{Fencehold, Key, Token};
use tokio_postgres::NoTls;

#[tokio::test]
async fn a_stale_holder_writes_nothing() {
    let cluster = tokio::task::spawn_blocking(|| Cluster::start(Durable::No)).await.unwrap();
    let port = cluster.url("fencehold").hosts[0].1;
    let fh = Fencehold::connect(&cluster.url_text("fencehold")).await.unwrap();
    let config = format!("host=127.0.0.1 port={port} user=postgres dbname=postgres");
    let (mut client, connection) = tokio_postgres::connect(&config, NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute("CREATE TABLE written (token bigint)").await.unwrap();

    let first = fh.lease("reports/daily").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    let old = first.token();
    let mut transaction = client.transaction().await.unwrap();
    fence::postgres(&mut transaction, &first).await.unwrap();
    transaction.execute("INSERT INTO written VALUES (1)", &[]).await.unwrap();
    transaction.commit().await.unwrap();
    first.release().await.unwrap();

    let pass = |token: Token| Pass::new(Key::new("reports/daily").unwrap(), token);
    let mut transaction = client.transaction().await.unwrap();
    match fence::postgres(&mut transaction, pass(old)).await {
        Err(refused @ FenceError::Ended { .. }) => {
            assert!(!refused.is_retryable() && refused.to_string().contains("it was released"), "{refused}");
        }
        other => panic!("{other:?}"),
    }
    transaction.rollback().await.unwrap();

    let second = fh.lease("reports/daily").ttl(Duration::from_secs(30)).acquire().await.unwrap();
    let mut transaction = client.transaction().await.unwrap();
    match fence::postgres_in("fencehold", &mut transaction, pass(old)).await {
        Err(FenceError::Stale { shown, highest, .. }) => assert_eq!((shown, highest), (old, second.token())),
        other => panic!("{other:?}"),
    }
    drop(transaction);
    let rows = client.query("SELECT token FROM written", &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
    second.release().await.unwrap();
    drop(fh);
    drop(tokio::task::spawn_blocking(move || drop(cluster)).await);
}
