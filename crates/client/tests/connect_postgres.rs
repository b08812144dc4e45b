//! Connecting to a database.

use std::time::Duration;

use fencehold::{Error, Fencehold};
use fencehold_test_servers::postgres::{Durable, PostgresServer};

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
    crate::connect_patiently(&url).await.close().await;
    assert_eq!(tokio::task::block_in_place(there), "t");
    drop(tokio::task::spawn_blocking(move || drop(cluster)).await);
}
