//! Callers that go away, and a server that stops.

use fencehold_core::Key;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use super::local_server::{HOLD, JSON, LocalServer, OTHER, call, read, read_text};

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_line() {
    let server = LocalServer::open().await;
    let held = server.take("k").await;
    let waiting = server.stand_in_line("k").await;
    drop(waiting);
    server.until_waiters("k", 0).await;
    server.store.release(&call(), vec![held]).await.unwrap();
    let view = server.store.get(&call(), Key::new("k").unwrap()).await.unwrap().unwrap();
    assert_eq!((view.holder, view.token.get()), (None, 1), "nothing was granted");
}

#[tokio::test]
async fn a_server_that_stops_sends_those_in_line_home_and_finishes() {
    let mut server = LocalServer::open().await;
    let _held = server.take("k").await;
    let waiting = server.stand_in_line("k").await;
    drop(server.stop.take());
    let (status, problem) = read(waiting).await;
    assert_eq!((status, &problem["type"]), (503, &json!("urn:fencehold:stopping")), "{problem}");
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
    server.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nothing listens any more");
    let view = server.store.get(&call(), Key::new("k").unwrap()).await.unwrap().unwrap();
    assert_eq!(view.waiter_count, 0);
}

/// While one request is under way, others still come: they learn that the server is not ready, nothing new is given to
/// them, and what they hold they can renew.
#[tokio::test]
async fn a_server_that_stops_says_so_and_renews_until_the_last_request_is_done() {
    let mut server = LocalServer::open().await;
    let held = server.take("k").await;
    let renewal =
        json!({ "holds": [{ "key": "k", "hold_id": HOLD, "token": held.token.get() }] }).to_string();
    let (first, rest) = renewal.split_at(10);
    let beginning = format!(
        "POST /v1/leases/renew-batch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{first}",
        renewal.len()
    );
    let mut under_way = TcpStream::connect(server.address).await.unwrap();
    under_way.write_all(beginning.as_bytes()).await.unwrap();
    server
        .until("the request is under way", async || {
            let page = read_text(server.send("GET", "/metrics", "connection: close\r\n", "").await).await;
            !page.contains("\nfencehold_limit_used{limit=\"body_bytes\"} 0\n")
        })
        .await;
    assert_eq!(server.status("/readyz").await, 200);
    drop(server.stop.take());
    server
        .until("it is not ready", async || server.status("/readyz").await == 503)
        .await;
    assert_eq!(server.status("/livez").await, 200);
    let (status, renewed) = server.ask("POST", "/v1/leases/renew-batch", JSON, &renewal).await;
    assert_eq!(status, 200, "{renewed}");
    assert!(renewed["results"][0].get("ok").is_some(), "{renewed}");
    let request = json!({ "key": "other", "hold_id": OTHER, "owner": "bob", "ttl_ms": 30_000 });
    let (status, problem) = server.post("/v1/leases/acquire", &request).await;
    // A pause, and no error: the library asks again by itself.
    assert_eq!((status, &problem["type"]), (503, &json!("urn:fencehold:stopping")), "{problem}");

    under_way.write_all(rest.as_bytes()).await.unwrap();
    let (status, finished) = read(under_way).await;
    assert_eq!(status, 200, "{finished}");
    assert!(finished["results"][0].get("ok").is_some(), "{finished}");
    server.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "nothing listens any more");
}
