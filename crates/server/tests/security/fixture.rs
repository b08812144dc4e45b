//! A server on a socket of its own, with tokens, and a client that sends exactly what it is given.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use fencehold_contract::LeaseStore;
use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_core::Namespace;
use fencehold_engine::MemoryStore;
use fencehold_server::access::{Access, AccessCache, Bearer, NewToken, Scope, TokenDb};
use fencehold_server::limit::ServerLimits;
use fencehold_server::{Server, ServerOptions};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::plain_client;

/// How long anything may take before the test has failed.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct SecurityFixture {
    pub(crate) address: SocketAddr,
    pub(crate) clock: ManualClock,
    place: tempfile::TempDir,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
    made: AtomicU8,
}

impl SecurityFixture {
    /// A server that asks for tokens, on a clock that is moved by hand.
    pub(crate) fn new() -> Self {
        SecurityFixture::with(ServerOptions::default())
    }

    /// A server with other limits.
    pub(crate) fn limited(limit: impl FnOnce(&mut ServerLimits)) -> Self {
        let mut options = ServerOptions::default();
        limit(&mut options.limits);
        SecurityFixture::with(options)
    }

    pub(crate) fn with(options: ServerOptions) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::open(Arc::new(clock.clone())).unwrap();
        SecurityFixture::over(options, Arc::new(store), clock)
    }

    /// A server that asks for no token.
    pub(crate) fn open(options: ServerOptions) -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::open(Arc::new(clock.clone())).unwrap();
        SecurityFixture::by(|keeper| Access::open(Some(keeper)), options, Arc::new(store), clock)
    }

    /// On a store of the test's own.
    pub(crate) fn over(options: ServerOptions, store: Arc<dyn LeaseStore>, by_hand: ManualClock) -> Self {
        SecurityFixture::by(Access::by_token, options, store, by_hand)
    }

    pub(crate) fn by(
        access: impl FnOnce(Arc<AccessCache>) -> Access,
        options: ServerOptions,
        store: Arc<dyn LeaseStore>,
        by_hand: ManualClock,
    ) -> Self {
        let clock: Arc<dyn Clock> = Arc::new(by_hand.clone());
        let place = tempfile::tempdir().unwrap();
        let keeper =
            Arc::new(AccessCache::start(place.path().join("access.db"), Arc::clone(&clock)).unwrap());
        let access = access(keeper);
        let (stop, stopped) = oneshot::channel::<()>();
        let server = move || Server::with_options(store, clock, access, options);
        let (address, thread) = plain_client::run(server, async { drop(stopped.await) });
        let (stop, thread, made) = (Some(stop), Some(thread), AtomicU8::new(1));
        SecurityFixture { address, clock: by_hand, place, stop, thread, made }
    }

    pub(crate) fn clock_wall_ms(&self) -> u64 {
        self.clock.now().wall_ms
    }

    pub(crate) fn token_db(&self) -> TokenDb {
        TokenDb::open(&self.place.path().join("access.db")).unwrap()
    }

    /// A token, known to the server when this returns.
    pub(crate) fn token(&self, namespace: Option<&str>, scopes: &[Scope]) -> TestToken {
        self.token_until(namespace, scopes, None)
    }

    /// One that may do everything in a namespace.
    pub(crate) fn admin(&self, namespace: &str) -> TestToken {
        self.token(Some(namespace), &[Scope::Admin])
    }

    /// One that may do everything.
    pub(crate) fn operator(&self) -> TestToken {
        self.token(None, &[Scope::Admin])
    }

    pub(crate) fn token_until(
        &self,
        namespace: Option<&str>,
        scopes: &[Scope],
        expires_wall_ms: Option<u64>,
    ) -> TestToken {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let bearer = Bearer::from_random([number; 38]);
        let new = NewToken {
            name: format!("token-{number}"),
            namespace: namespace.map(|name| Namespace::new(name).unwrap()),
            scopes: scopes.iter().copied().collect(),
            created_by: "the test".to_owned(),
            expires_wall_ms,
        };
        self.token_db().create(&bearer, &new, "here", self.clock.now().wall_ms).unwrap();
        let token = TestToken { bearer, namespace: namespace.map(ToOwned::to_owned) };
        eventually("the server knows the token", || {
            self.ask(&token, "GET", "/v1/store/capabilities", None).status != 401
        });
        token
    }

    pub(crate) fn revoke(&self, token: &TestToken) {
        let now_ms = self.clock.now().wall_ms;
        let revoked = self
            .token_db()
            .revoke(token.bearer.id, "the test", "here", Some("a test"), now_ms);
        assert!(revoked.unwrap(), "it was in force");
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream
    }

    /// One request on a connection of its own.
    pub(crate) fn ask(&self, token: &TestToken, method: &str, path: &str, body: Option<&Value>) -> HttpReply {
        self.ask_with(&token.headers(), method, path, body)
    }

    pub(crate) fn post(&self, token: &TestToken, path: &str, body: Value) -> HttpReply {
        self.ask(token, "POST", path, Some(&body))
    }

    pub(crate) fn ask_with(
        &self,
        headers: &str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> HttpReply {
        let mut stream = self.connect();
        send(&mut stream, headers, method, path, body);
        hear(stream)
    }

    /// One request with exactly this head after its first line.
    pub(crate) fn ask_head(&self, head: &str, path: &str) -> HttpReply {
        let mut stream = self.connect();
        write!(stream, "GET {path} HTTP/1.1\r\nconnection: close\r\n{head}\r\n").unwrap();
        hear(stream)
    }

    /// The status of an answer that need not have an end.
    pub(crate) fn first_status(&self, headers: &str, path: &str) -> u16 {
        let mut stream = self.connect();
        send(&mut stream, headers, "GET", path, None);
        let mut line = String::new();
        let _ = BufReader::new(stream).read_line(&mut line);
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0)
    }

    /// Takes a key.
    pub(crate) fn acquire(&self, token: &TestToken, key: &str, hold: u8, ttl_ms: u64) -> u64 {
        let said = self.post(token, "/v1/leases/acquire", acquire(key, hold, ttl_ms));
        assert_eq!(said.status, 200, "{said:?}");
        said.json["token"].as_u64().unwrap()
    }

    /// Renews a lease.
    pub(crate) fn renews(&self, token: &TestToken, key: &str, hold: u8, fence: u64) {
        let holds = json!({ "holds": [held(key, hold, fence)] });
        let said = self.post(token, "/v1/leases/renew-batch", holds);
        assert!(said.json["results"][0].get("ok").is_some(), "{said:?}");
    }

    /// Stands in line for a key.
    pub(crate) fn stands(&self, token: &TestToken, key: &str, hold: u8) -> TcpStream {
        let mut stream = self.connect();
        let body = waits(acquire(key, hold, 60_000));
        send(&mut stream, &token.headers(), "POST", "/v1/leases/acquire", Some(&body));
        stream
    }

    /// The value of a metric, by the whole of its name and labels.
    pub(crate) fn metric(&self, operator: &TestToken, name: &str) -> f64 {
        let said = self.ask(operator, "GET", "/metrics", None);
        assert_eq!(said.status, 200, "{said:?}");
        let line = said.body.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no {name} in {}", said.body)).parse().unwrap()
    }

    /// Whether a metric has this value.
    pub(crate) fn shows(&self, operator: &TestToken, name: &str, value: f64) -> bool {
        (self.metric(operator, name) - value).abs() < 0.5
    }
}

impl Drop for SecurityFixture {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

pub(crate) struct TestToken {
    pub(crate) bearer: Bearer,
    namespace: Option<String>,
}

impl TestToken {
    /// Names this namespace from now on.
    pub(crate) fn in_namespace(&mut self, namespace: &str) {
        self.namespace = Some(namespace.to_owned());
    }

    pub(crate) fn headers(&self) -> String {
        let authorization = format!("authorization: Bearer {}\r\n", self.bearer.reveal());
        match &self.namespace {
            Some(namespace) => format!("{authorization}fencehold-namespace: {namespace}\r\n"),
            None => authorization,
        }
    }
}

#[derive(Debug)]
pub(crate) struct HttpReply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    pub(crate) json: Value,
}

impl HttpReply {
    pub(crate) fn kind(&self) -> &str {
        self.json["type"]
            .as_str()
            .unwrap_or_default()
            .trim_start_matches("urn:fencehold:")
    }
}

pub(crate) fn send(stream: &mut TcpStream, headers: &str, method: &str, path: &str, body: Option<&Value>) {
    let body = body.map(Value::to_string).unwrap_or_default();
    send_text(stream, headers, method, path, &body);
}

/// The same with a body as it is written here.
pub(crate) fn send_text(stream: &mut TcpStream, headers: &str, method: &str, path: &str, body: &str) {
    let kind = if method == "POST" { "content-type: application/json\r\n" } else { "" };
    let length = body.len();
    let text = format!(
        "{method} {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}{kind}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).unwrap();
}

/// Reads an answer to its end.
pub(crate) fn hear(mut stream: TcpStream) -> HttpReply {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    let json = serde_json::from_str(body).unwrap_or(Value::Null);
    HttpReply { status, head: head.to_lowercase(), body: body.to_owned(), json }
}

pub(crate) fn hold(number: u8) -> String {
    format!("{number:02x}").repeat(16)
}

pub(crate) fn acquire(key: &str, number: u8, ttl_ms: u64) -> Value {
    json!({ "key": key, "hold_id": hold(number), "owner": "tester", "ttl_ms": ttl_ms })
}

/// The same request, standing in line for a minute.
pub(crate) fn waits(mut request: Value) -> Value {
    request["wait_ms"] = json!(60_000);
    request
}

pub(crate) fn held(key: &str, number: u8, token: u64) -> Value {
    json!({ "key": key, "hold_id": hold(number), "token": token })
}

/// Waits until something can be seen. The order of events is never left to this: only their arrival.
pub(crate) fn eventually(what: &str, mut seen: impl FnMut() -> bool) {
    let began = std::time::Instant::now();
    while !seen() {
        assert!(began.elapsed() < LIMIT, "never seen: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
