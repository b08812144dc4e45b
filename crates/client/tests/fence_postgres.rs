//! A fence inside a transaction of one's own, through the library.

use std::time::Duration;

use fencehold::fence::{self, FenceError, KeyToken};
use fencehold::{Error, Fencehold, Key, Token};
use fencehold_test_servers::postgres::{Durable, PostgresServer};
use tokio_postgres::NoTls;

#[tokio::test]
async fn a_stale_holder_writes_nothing() {
    let cluster = tokio::task::spawn_blocking(|| PostgresServer::start(Durable::No))
        .await
        .unwrap();
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

    let pass = |token: Token| KeyToken::new(Key::new("reports/daily").unwrap(), token);
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
    match fence::postgres_in_schema("fencehold", &mut transaction, pass(old)).await {
        Err(FenceError::Stale { token, highest_token, .. }) => {
            assert_eq!((token, highest_token), (old, second.token()));
        }
        other => panic!("{other:?}"),
    }
    drop(transaction);
    let rows = client.query("SELECT token FROM written", &[]).await.unwrap();
    assert_eq!(rows.len(), 1);
    second.release().await.unwrap();
    drop(fh);
    drop(tokio::task::spawn_blocking(move || drop(cluster)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn connecting_proves_that_the_database_answers_and_makes_the_schema() {
    let cluster = tokio::task::spawn_blocking(|| PostgresServer::start(Durable::No))
        .await
        .unwrap();
    let connect = |url: String| Fencehold::builder().url(url).timeout(Duration::from_millis(50));
    let closed = "postgres://postgres@127.0.0.1:1/postgres".to_owned();
    match connect(closed.clone()).connect().await {
        Err(Error::Unavailable { message, .. }) => assert!(message.contains("127.0.0.1:1"), "{message}"),
        other => panic!("nothing listens there: {other:?}"),
    }
    let missing = cluster.url_text_in("nowhere", "fencehold");
    match connect(missing.clone()).connect().await {
        Err(error) => assert!(error.to_string().contains("nowhere"), "{error}"),
        Ok(other) => panic!("there is no such database: {other:?}"),
    }
    for url in [closed, missing] {
        connect(url).connect_lazy().await.expect("it asks nothing").close().await;
    }
    let url = cluster.url_text("fencehold");
    let there = || {
        let admin = cluster.admin();
        admin.value("SELECT to_regclass('fencehold.migration') IS NOT NULL")
    };
    connect(url.clone()).connect_lazy().await.unwrap().close().await;
    assert_eq!(tokio::task::block_in_place(there), "f");
    Fencehold::connect(&url).await.unwrap().close().await;
    assert_eq!(tokio::task::block_in_place(there), "t");
    drop(tokio::task::spawn_blocking(move || drop(cluster)).await);
}
