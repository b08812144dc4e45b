//! Streams of events.

use fencehold_contract::{AcquireLeaseRequest, HoldRef};
use fencehold_core::{HoldId, Key, Owner};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use super::local_server::{LocalServer, call};

/// The messages of a stream of events, one after the other.
struct StreamReader(BufReader<TcpStream>);

impl StreamReader {
    async fn start(server: &LocalServer, query: &str, headers: &str) -> Self {
        let stream = server.send("GET", &format!("/v1/events/stream{query}"), headers, "").await;
        StreamReader(BufReader::new(stream))
    }

    /// The next batch of events, and the cursor to go on from.
    async fn batch(&mut self) -> (u64, Vec<Value>) {
        let (mut id, mut line) = (0, String::new());
        loop {
            line.clear();
            assert_ne!(self.0.read_line(&mut line).await.unwrap(), 0, "the stream ended");
            if let Some(cursor) = line.trim_end().strip_prefix("id: ") {
                id = cursor.parse().unwrap();
            }
            if let Some(events) = line.trim_end().strip_prefix("data: ") {
                return (id, serde_json::from_str(events).unwrap());
            }
        }
    }
}

#[tokio::test]
async fn a_watcher_gets_batches_and_resumes_from_its_cursor_without_loss() {
    let server = LocalServer::open().await;
    for nth in 0..50 {
        server.take(&format!("k/{nth}")).await;
    }
    let mut watcher = StreamReader::start(&server, "?prefix=k/", "").await;
    let (cursor, events) = watcher.batch().await;
    assert_eq!(events.len(), 50, "what happened so far comes in one batch");
    assert_eq!(cursor, events[49]["seq"].as_u64().unwrap());
    drop(watcher);
    server.take("k/50").await;
    server.take("elsewhere").await;
    let mut watcher =
        StreamReader::start(&server, "?prefix=k/", &format!("last-event-id: {cursor}\r\n")).await;
    let (_, events) = watcher.batch().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["key"], "k/50");
    // What is read again has the form of what happens.
    assert_eq!(events[0]["type"], "lease_acquired", "{}", events[0]);
    server.take("k/51").await;
    let (_, events) = watcher.batch().await;
    assert_eq!(events[0]["key"], "k/51", "as it happens");
    assert_eq!(events[0]["type"], "lease_acquired", "{}", events[0]);
}

/// A client takes and gives back so many keys with long names, behind the server's back.
async fn happen(server: &LocalServer, many: u64) {
    let long = "k".repeat(500);
    for nth in 0..many {
        let hold = HoldId::parse(&format!("{many:016x}{nth:016x}")).unwrap();
        let (key, owner) =
            (Key::new(format!("{long}/{}", nth % 400)).unwrap(), Owner::new("a".repeat(250)).unwrap());
        let request = AcquireLeaseRequest::new(key.clone(), hold, owner, 30_000);
        let token = server.store.acquire(&call(), request).await.unwrap().grant.token;
        let ended = HoldRef { key, hold_id: hold, token };
        server.store.release(&call(), vec![ended]).await.unwrap();
    }
}

/// Ends once the server has cut off a connection that is not read.
async fn cut_off(mut stream: TcpStream) {
    let cut = async {
        while stream.write_all(b"\r\n").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    let limit = std::time::Duration::from_secs(60);
    tokio::time::timeout(limit, cut).await.expect("a watcher that is cut off");
}

/// Real time passes for as long as the server tolerates a watcher that does not read.
#[tokio::test]
async fn a_watcher_that_reads_nothing_is_cut_off_and_resumes_from_its_cursor_without_loss() {
    let server = LocalServer::open().await;
    let mut watcher = StreamReader::start(&server, "", "").await;
    happen(&server, 10).await;
    let (mut cursor, mut seen) = (0, Vec::new());
    while seen.len() < 20 {
        let (next, events) = watcher.batch().await;
        cursor = next;
        seen.extend(events);
    }
    // More than the sockets between the two take, and less than the store keeps.
    happen(&server, 7_500).await;
    cut_off(watcher.0.into_inner()).await;

    let mut watcher = StreamReader::start(&server, "", &format!("last-event-id: {cursor}\r\n")).await;
    let last = server.store.status(&call()).await.unwrap().newest_event_seq;
    while cursor < last {
        let (next, events) = watcher.batch().await;
        cursor = next;
        seen.extend(events);
    }
    let seen: Vec<u64> = seen.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seen, (1..=last).collect::<Vec<_>>(), "each once, in order");
}

/// Also beside watchers of other tasks and of the same keys, and both in what was there before and in what happens.
#[tokio::test]
async fn a_watcher_of_a_task_is_told_of_those_below_it_and_of_no_neighbour() {
    let server = LocalServer::open().await;
    let take = async |nth: u32, task: &str| {
        let body = json!({ "key": format!("k/{nth}"), "owner": "ada", "task": task, "ttl_ms": 60_000,
            "hold_id": format!("{nth:032x}") });
        let (status, said) = server.post("/v1/leases/acquire", &body).await;
        assert_eq!(status, 200, "{said}");
    };
    take(1, "run-42").await;
    take(2, "run-420").await;
    let mut watchers = Vec::new();
    for query in [
        "?cursor=0&task_prefix=run-42",
        "?cursor=0&prefix=k/&task_prefix=run-42",
        "?cursor=0&task_prefix=run-420",
    ] {
        let mut watcher = StreamReader::start(&server, query, "").await;
        let (_, before) = watcher.batch().await;
        watchers.push((query, watcher, before));
    }
    server.take("k/3").await;
    take(4, "run-42/a").await;
    take(5, "run-420/a").await;
    for (query, mut watcher, mut told) in watchers {
        while told.len() < 2 {
            told.extend(watcher.batch().await.1);
        }
        let keys: Vec<&str> = told.iter().map(|event| event["key"].as_str().unwrap()).collect();
        let expected = if query.ends_with("run-42") { ["k/1", "k/4"] } else { ["k/2", "k/5"] };
        assert_eq!(keys, expected, "{query}");
    }
}

#[tokio::test]
async fn many_watchers_of_many_prefixes_are_each_told_their_own_and_in_batches() {
    let server = LocalServer::open().await;
    let mut watchers = Vec::new();
    for nth in 0..40 {
        // Half of them watch one key, the others all that begin with its first digit; two watch everything.
        let prefix = if nth < 20 { format!("k/{nth}/") } else { format!("k/{}", nth % 10) };
        let watcher = StreamReader::start(&server, &format!("?cursor=0&prefix={prefix}"), "").await;
        watchers.push((prefix, watcher));
    }
    for _ in 0..2 {
        watchers.push((String::new(), StreamReader::start(&server, "?cursor=0", "").await));
    }
    let mut keys = Vec::new();
    for nth in 0..600 {
        keys.push(format!("k/{}/{nth}", nth % 20));
        server.take(&keys[nth]).await;
    }
    for (prefix, mut watcher) in watchers {
        let expected: Vec<&String> = keys.iter().filter(|key| key.starts_with(&prefix)).collect();
        let (mut told, mut messages) = (Vec::new(), 0);
        while told.len() < expected.len() {
            let (_, events) = watcher.batch().await;
            told.extend(events.iter().map(|event| event["key"].as_str().unwrap().to_owned()));
            messages += 1;
        }
        assert_eq!(told.iter().collect::<Vec<_>>(), expected, "under {prefix:?}");
        if prefix.is_empty() {
            assert!(messages < expected.len() / 2, "{messages} messages for {} events", expected.len());
        }
    }
}
