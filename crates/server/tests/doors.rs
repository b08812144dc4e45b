//! What only the door itself can get wrong: callers that go away, watchers, a server that stops, and what is said of bad
//! requests.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

use std::sync::Arc;

use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_server::Server;
use fencehold_server::access::Access;
use fencehold_store::clock::ManualClock;
use fencehold_store::{AcquireRequest, Call, HoldRef, LeaseStore, MemoryStore};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

const HOLD: &str = "000102030405060708090a0b0c0d0e0f";
const OTHER: &str = "100102030405060708090a0b0c0d0e0f";

/// A server in this process, on a store whose time stands still.
struct Door {
    store: Arc<dyn LeaseStore>,
    address: std::net::SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<std::io::Result<()>>,
}

impl Door {
    async fn open() -> Self {
        let clock = Arc::new(ManualClock::new());
        let store: Arc<dyn LeaseStore> = Arc::new(MemoryStore::open(clock.clone()).unwrap());
        let server = Server::new(Arc::clone(&store), clock, Access::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving =
            tokio::spawn(async move { server.serve(listener, async { drop(stopped.await) }).await });
        Door { store, address, stop: Some(stop), serving }
    }

    /// Sends a request and leaves the answer to whoever reads it.
    async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let head =
            format!("{method} {path} HTTP/1.1\r\nhost: door\r\ncontent-length: {length}\r\n{headers}\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        stream
    }

    async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let headers = format!("connection: close\r\n{headers}");
        read(self.send(method, path, &headers, body).await).await
    }

    async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", path, "content-type: application/json\r\n", &body.to_string())
            .await
    }

    /// One who waits for a key that somebody holds, once it stands in line.
    async fn stand_in_line(&self, key: &str) -> TcpStream {
        let request =
            json!({ "keys": [key], "hold": OTHER, "owner": "bob", "ttl_ms": 30_000, "wait_ms": 60_000 });
        let json = "content-type: application/json\r\n";
        let waiting = self.send("POST", "/v1/leases/acquire", json, &request.to_string()).await;
        self.until_waiters(key, 1).await;
        waiting
    }

    async fn until_waiters(&self, key: &str, count: u64) {
        loop {
            let view = self.store.get(&call(), Key::new(key).unwrap()).await.unwrap();
            if view.is_some_and(|view| view.waiters == count) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes a key behind the server's back.
    async fn take(&self, key: &str) -> HoldRef {
        let (key, hold) = (Key::new(key).unwrap(), HoldId::parse(HOLD).unwrap());
        let request = AcquireRequest::new(key.clone(), hold, Owner::new("ada").unwrap(), 30_000);
        let acquired = self.store.acquire(&call(), request).await.unwrap();
        HoldRef { key, hold, token: acquired.grant.token }
    }
}

fn call() -> Call {
    Call::new(Namespace::default())
}

/// The status and the body of an answer, as JSON.
async fn read(mut stream: TcpStream) -> (u16, Value) {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}

#[tokio::test]
async fn a_caller_that_goes_away_leaves_the_line() {
    let door = Door::open().await;
    let held = door.take("k").await;
    let waiting = door.stand_in_line("k").await;
    drop(waiting);
    door.until_waiters("k", 0).await;
    door.store.release(&call(), vec![held]).await.unwrap();
    let view = door.store.get(&call(), Key::new("k").unwrap()).await.unwrap().unwrap();
    assert_eq!((view.holder, view.token.get()), (None, 1), "nobody was granted anything");
}

#[tokio::test]
async fn a_server_that_stops_sends_those_in_line_home_and_finishes() {
    let mut door = Door::open().await;
    let _held = door.take("k").await;
    let waiting = door.stand_in_line("k").await;
    drop(door.stop.take());
    let (status, problem) = read(waiting).await;
    assert_eq!((status, &problem["type"]), (503, &json!("urn:fencehold:stopping")), "{problem}");
    assert!(problem["retry_after_ms"].is_u64(), "{problem}");
    door.serving.await.unwrap().unwrap();
    assert!(TcpStream::connect(door.address).await.is_err(), "nobody listens any more");
    let view = door.store.get(&call(), Key::new("k").unwrap()).await.unwrap().unwrap();
    assert_eq!(view.waiters, 0);
}

#[tokio::test]
async fn a_second_acquirer_is_told_who_holds_it_for_which_task_and_for_how_long() {
    let door = Door::open().await;
    let request = |hold: &str, owner: &str| json!({ "keys": ["a/b"], "hold": hold, "owner": owner, "task": "run-42", "ttl_ms": 30_000 });
    let (status, acquired) = door.post("/v1/leases/acquire", &request(HOLD, "ada")).await;
    assert_eq!((status, &acquired["token"], &acquired["key"]), (200, &json!(1), &json!("a/b")), "{acquired}");
    let (status, problem) = door.post("/v1/leases/acquire", &request(OTHER, "bob")).await;
    assert_eq!(status, 409);
    for (member, value) in [
        ("type", json!("urn:fencehold:held")),
        ("status", json!(409)),
        ("key", json!("a/b")),
        ("owner", json!("ada")),
        ("task", json!("run-42")),
        ("expires_in_ms", json!(30_000)),
        ("current_token", json!(1)),
    ] {
        assert_eq!(problem[member], value, "{member} of {problem}");
    }
}

#[tokio::test]
async fn the_same_idempotency_key_makes_the_same_jobs() {
    let door = Door::open().await;
    let enqueue = async |key: &str, namespace: &str, number: u64| {
        let body = json!({ "jobs": [{ "kind": "a", "payload": number }, { "kind": "b" }] });
        let headers = format!(
            "content-type: application/json\r\nidempotency-key: {key}\r\nfencehold-namespace: {namespace}\r\n"
        );
        let (status, answer) = door.ask("POST", "/v1/jobs/enqueue", &headers, &body.to_string()).await;
        assert_eq!(status, 200, "{answer}");
        answer["answers"].clone()
    };
    let first = enqueue("order-7", "default", 1).await;
    let again = enqueue("order-7", "default", 1).await;
    for nth in 0..2 {
        assert_eq!(first[nth]["ok"]["existed"], false, "{first}");
        assert_eq!(again[nth]["ok"]["existed"], true, "{again}");
        assert_eq!(first[nth]["ok"]["id"], again[nth]["ok"]["id"]);
    }
    assert_ne!(first[0]["ok"]["id"], first[1]["ok"]["id"], "each job its own");
    let other = enqueue("order-7", "default", 2).await;
    assert_eq!(other[0]["problem"]["type"], "urn:fencehold:conflict", "{other}");
    assert_eq!(other[1]["ok"]["existed"], true, "{other}");
    let elsewhere = enqueue("order-7", "team-b", 1).await;
    assert_eq!(elsewhere[0]["ok"]["existed"], false, "another namespace is another world: {elsewhere}");
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_and_no_secret_is_repeated() {
    let door = Door::open().await;
    let json = "content-type: application/json\r\n";
    let almost = format!("{}zz", &HOLD[..30]);
    let bad_hold = json!({ "holds": [{ "key": "k", "hold": almost, "token": 1 }] }).to_string();
    let unknown_field = json!({ "holds": [], "force": true }).to_string();
    for (method, path, headers, body, status, kind) in [
        ("POST", "/v1/leases/renew", json, bad_hold.as_str(), 400, "bad-input"),
        ("POST", "/v1/leases/renew", json, unknown_field.as_str(), 400, "bad-input"),
        ("POST", "/v1/leases/renew", json, "{", 400, "bad-input"),
        ("POST", "/v1/leases/renew", "", "{}", 415, "not-json"),
        ("GET", "/v1/leases?limit=x", "", "", 400, "bad-input"),
        ("GET", "/v1/leases?no_such_field=1", "", "", 400, "bad-input"),
        ("GET", "/v1/leases", "fencehold-namespace: No!\r\n", "", 400, "bad-input"),
        ("GET", "/v1/lease?key=nobody/has/it", "", "", 404, "no-such-key"),
        ("GET", "/v1/jobs/00000000-0000-7000-8000-000000000000", "", "", 404, "no-such-job"),
        ("GET", "/v1/nowhere", "", "", 404, "no-such-path"),
        ("DELETE", "/v1/leases", "", "", 405, "bad-method"),
        ("GET", "/v1/events?after=99", "", "", 400, "bad-input"),
        ("GET", "/v1/events/stream?after=x", "", "", 400, "bad-input"),
    ] {
        let (got, problem) = door.ask(method, path, headers, body).await;
        let said = problem["type"].as_str().unwrap_or_default();
        assert_eq!(
            (got, said),
            (status, format!("urn:fencehold:{kind}").as_str()),
            "{method} {path}: {problem}"
        );
        assert!(!problem.to_string().contains(&HOLD[..30]), "{problem}");
    }
}

#[tokio::test]
async fn keys_of_every_kind_come_through_a_query() {
    let door = Door::open().await;
    for key in ["a//b", "..", "/", "a b+c", "%2F", "ключ/日本", "?x=1&y#z"] {
        door.take(key).await;
        let query = serde_html_form::to_string([("key", key)]).unwrap();
        let (status, view) = door.ask("GET", &format!("/v1/lease?{query}"), "", "").await;
        assert_eq!((status, view["key"].as_str()), (200, Some(key)), "{view}");
    }
}

/// The messages of a stream of events, one after the other.
struct Watcher(BufReader<TcpStream>);

impl Watcher {
    async fn start(door: &Door, query: &str, headers: &str) -> Self {
        let stream = door.send("GET", &format!("/v1/events/stream{query}"), headers, "").await;
        Watcher(BufReader::new(stream))
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
    let door = Door::open().await;
    for nth in 0..50 {
        door.take(&format!("k/{nth}")).await;
    }
    let mut watcher = Watcher::start(&door, "?prefix=k/", "").await;
    let (cursor, events) = watcher.batch().await;
    assert_eq!(events.len(), 50, "what happened so far comes in one batch");
    assert_eq!(cursor, events[49]["seq"].as_u64().unwrap());
    drop(watcher);
    door.take("k/50").await;
    door.take("elsewhere").await;
    let mut watcher = Watcher::start(&door, "?prefix=k/", &format!("last-event-id: {cursor}\r\n")).await;
    let (_, events) = watcher.batch().await;
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["key"], "k/50");
    door.take("k/51").await;
    let (_, events) = watcher.batch().await;
    assert_eq!(events[0]["key"], "k/51", "as it happens");
}

/// Somebody takes and gives back so many keys with long names, behind the server's back.
async fn happen(door: &Door, many: u64) {
    let long = "k".repeat(500);
    for nth in 0..many {
        let hold = HoldId::parse(&format!("{many:016x}{nth:016x}")).unwrap();
        let (key, owner) =
            (Key::new(format!("{long}/{}", nth % 400)).unwrap(), Owner::new("a".repeat(250)).unwrap());
        let request = AcquireRequest::new(key.clone(), hold, owner, 30_000);
        let token = door.store.acquire(&call(), request).await.unwrap().grant.token;
        door.store.release(&call(), vec![HoldRef { key, hold, token }]).await.unwrap();
    }
}

/// Ends once the server has cut a connection off, which nobody reads from.
async fn cut_off(mut stream: TcpStream) {
    let cut = async {
        while stream.write_all(b"\r\n").await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(std::time::Duration::from_secs(60), cut)
        .await
        .expect("a watcher that is cut off");
}

/// Real time passes for as long as the server bears with a watcher that does not read.
#[tokio::test]
async fn a_watcher_that_reads_nothing_is_cut_off_and_resumes_from_its_cursor_without_loss() {
    let door = Door::open().await;
    let mut watcher = Watcher::start(&door, "", "").await;
    happen(&door, 10).await;
    let (mut cursor, mut seen) = (0, Vec::new());
    while seen.len() < 20 {
        let (next, events) = watcher.batch().await;
        cursor = next;
        seen.extend(events);
    }
    // More than the sockets between the two take, and less than the store keeps.
    happen(&door, 7_500).await;
    cut_off(watcher.0.into_inner()).await;

    let mut watcher = Watcher::start(&door, "", &format!("last-event-id: {cursor}\r\n")).await;
    let last = door.store.status(&call()).await.unwrap().last_event;
    while cursor < last {
        let (next, events) = watcher.batch().await;
        cursor = next;
        seen.extend(events);
    }
    let seen: Vec<u64> = seen.iter().map(|event| event["seq"].as_u64().unwrap()).collect();
    assert_eq!(seen, (1..=last).collect::<Vec<_>>(), "each once, in order");
}

#[tokio::test]
async fn many_watchers_of_many_prefixes_are_each_told_their_own_and_in_batches() {
    let door = Door::open().await;
    let mut watchers = Vec::new();
    for nth in 0..40 {
        // Half of them watch one key, the others all that begin with its first digit; two watch everything.
        let prefix = if nth < 20 { format!("k/{nth}/") } else { format!("k/{}", nth % 10) };
        watchers
            .push((prefix.clone(), Watcher::start(&door, &format!("?after=0&prefix={prefix}"), "").await));
    }
    for _ in 0..2 {
        watchers.push((String::new(), Watcher::start(&door, "?after=0", "").await));
    }
    let mut keys = Vec::new();
    for nth in 0..60 {
        keys.push(format!("k/{}/{nth}", nth % 20));
        door.take(&keys[nth]).await;
    }
    for (prefix, mut watcher) in watchers {
        let expected: Vec<&String> = keys.iter().filter(|key| key.starts_with(&prefix)).collect();
        let (mut told, mut messages) = (Vec::new(), 0);
        while told.len() < expected.len() {
            told.extend(
                watcher
                    .batch()
                    .await
                    .1
                    .iter()
                    .map(|event| event["key"].as_str().unwrap().to_owned()),
            );
            messages += 1;
        }
        assert_eq!(told.iter().collect::<Vec<_>>(), expected, "under {prefix:?}");
        assert!(messages <= 60, "{messages} messages");
    }
}
