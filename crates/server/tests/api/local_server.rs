//! A server in this process, and clients that speak to it in plain HTTP or behind its back.

use std::sync::Arc;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::{AcquireLeaseRequest, CallContext, HoldRef, LeaseStore};
use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_engine::MemoryStore;
use fencehold_server::Server;
use fencehold_server::access::Access;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

pub(crate) const HOLD: &str = "000102030405060708090a0b0c0d0e0f";
pub(crate) const OTHER: &str = "100102030405060708090a0b0c0d0e0f";
/// The header of a request whose body is JSON.
pub(crate) const JSON: &str = "content-type: application/json\r\n";

/// A server in this process, on a store whose time stands still.
pub(crate) struct LocalServer {
    pub(crate) store: Arc<dyn LeaseStore>,
    pub(crate) address: std::net::SocketAddr,
    pub(crate) stop: Option<oneshot::Sender<()>>,
    pub(crate) serving: JoinHandle<std::io::Result<()>>,
}

impl LocalServer {
    pub(crate) async fn open() -> Self {
        let clock = Arc::new(ManualClock::new());
        let store: Arc<dyn LeaseStore> = Arc::new(MemoryStore::open(clock.clone()).unwrap());
        let server = Server::new(Arc::clone(&store), clock, Access::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let serving =
            tokio::spawn(async move { server.serve(listener, async { drop(stopped.await) }).await });
        LocalServer { store, address, stop: Some(stop), serving }
    }

    /// Sends a request and leaves the answer to be read later.
    pub(crate) async fn send(&self, method: &str, path: &str, headers: &str, body: &str) -> TcpStream {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n{headers}\r\n"
        );
        stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
        stream
    }

    pub(crate) async fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, Value) {
        let headers = format!("connection: close\r\n{headers}");
        read(self.send(method, path, &headers, body).await).await
    }

    pub(crate) async fn post(&self, path: &str, body: &Value) -> (u16, Value) {
        self.ask("POST", path, JSON, &body.to_string()).await
    }

    /// One who waits for a key that is held, once it stands in line.
    pub(crate) async fn stand_in_line(&self, key: &str) -> TcpStream {
        let request =
            json!({ "key": key, "hold_id": OTHER, "owner": "bob", "ttl_ms": 30_000, "wait_ms": 60_000 });
        let waiting = self.send("POST", "/v1/leases/acquire", JSON, &request.to_string()).await;
        self.until_waiters(key, 1).await;
        waiting
    }

    pub(crate) async fn until_waiters(&self, key: &str, count: u64) {
        self.until("so many wait", async || {
            let view = self.store.get(&call(), Key::new(key).unwrap()).await.unwrap();
            view.is_some_and(|view| view.waiter_count == count)
        })
        .await;
    }

    /// The status of an answer; 0: the connection was closed without one.
    pub(crate) async fn status(&self, path: &str) -> u16 {
        let answer = read_text(self.send("GET", path, "connection: close\r\n", "").await).await;
        answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// Waits until something can be seen: its arrival, never the order of things, is left to this.
    pub(crate) async fn until(&self, what: &str, seen: impl AsyncFn() -> bool) {
        let seeing = async {
            while !seen().await {
                tokio::task::yield_now().await;
            }
        };
        let limit = std::time::Duration::from_secs(60);
        tokio::time::timeout(limit, seeing)
            .await
            .unwrap_or_else(|_| panic!("never seen: {what}"));
    }

    /// Takes a key behind the server's back.
    pub(crate) async fn take(&self, key: &str) -> HoldRef {
        let (key, hold) = (Key::new(key).unwrap(), HoldId::parse(HOLD).unwrap());
        let request = AcquireLeaseRequest::new(key.clone(), hold, Owner::new("ada").unwrap(), 30_000);
        let acquired = self.store.acquire(&call(), request).await.unwrap();
        HoldRef { key, hold_id: hold, token: acquired.grant.token }
    }
}

/// An object must have these members, beside others.
#[track_caller]
pub(crate) fn assert_has(seen: &Value, members: &Value) {
    for (name, value) in members.as_object().unwrap() {
        assert_eq!(&seen[name], value, "{name} of {seen}");
    }
}

pub(crate) fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

/// All that comes until the connection is closed, or breaks off.
pub(crate) async fn read_text(mut stream: TcpStream) -> String {
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    answer
}

/// The status and the body of an answer, as JSON.
pub(crate) async fn read(stream: TcpStream) -> (u16, Value) {
    let answer = read_text(stream).await;
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap_or(Value::Null))
}
