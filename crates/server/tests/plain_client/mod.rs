//! A server that asks for no token, on a clock that is moved by hand, and a client that speaks plain HTTP.
#![allow(unreachable_pub, reason = "it is a module of a test program")]
#![allow(clippy::disallowed_methods, reason = "real sockets live in real time")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use fencehold_contract::clock::ManualClock;
use fencehold_engine::MemoryStore;
use fencehold_server::access::Access;
use fencehold_server::{Server, ServerOptions};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

pub struct PlainClient(SocketAddr);

/// Starts a server in this process. It ends with it.
pub fn serve(clock: &ManualClock, options: impl FnOnce() -> ServerOptions + Send + 'static) -> PlainClient {
    start(clock, options, std::future::pending()).0
}

/// Starts a server, has it visited, and stops it in good order.
pub fn serve_for(
    clock: &ManualClock,
    options: impl FnOnce() -> ServerOptions + Send + 'static,
    visit: impl FnOnce(&PlainClient),
) {
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (client, serving) = start(clock, options, async { drop(stopped.await) });
    visit(&client);
    drop(stop);
    serving.join().unwrap();
}

fn start(
    clock: &ManualClock,
    options: impl FnOnce() -> ServerOptions + Send + 'static,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (PlainClient, JoinHandle<()>) {
    let clock = Arc::new(clock.clone());
    let server = move || {
        let store = Arc::new(MemoryStore::open(clock.clone()).unwrap());
        Server::with_options(store, clock, Access::default(), options())
    };
    let (address, serving) = run(server, stop);
    (PlainClient(address), serving)
}

/// Runs a server on a thread of its own, at an address of this machine.
pub fn run(
    server: impl FnOnce() -> Server + Send + 'static,
    stop: impl Future<Output = ()> + Send + 'static,
) -> (SocketAddr, JoinHandle<()>) {
    let (tell, told) = std::sync::mpsc::channel();
    let serving = std::thread::spawn(move || {
        runtime().block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            server().serve(listener, stop).await.unwrap();
        });
    });
    (told.recv().unwrap(), serving)
}

/// What a server runs on.
pub fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

impl PlainClient {
    /// Where the server listens.
    pub fn address(&self) -> SocketAddr {
        self.0
    }

    /// Asks, and gives status and body.
    pub fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.0).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\n{headers}content-length: {}\r\n\r\n{body}",
            body.len()
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }

    /// Asks for something that must succeed.
    pub fn post(&self, path: &str, traceparent: &str, body: &Value) -> Value {
        let trace =
            if traceparent.is_empty() { String::new() } else { format!("traceparent: {traceparent}\r\n") };
        let (status, said) = self.ask("POST", path, &trace, &body.to_string());
        assert_eq!(status, 200, "{said}");
        serde_json::from_str(&said).unwrap()
    }

    /// Claims the job, letting time pass until it is there to be claimed.
    pub fn claim(&self, number: u8, clock: &ManualClock) -> Value {
        let hold = format!("{number:02x}").repeat(16);
        let body = json!({ "queues": [{ "queue": "q" }], "hold_id": hold, "owner": format!("worker-{number}"), "ttl_ms": 1_000 });
        eventually("the job is ready", || {
            let claimed = self.post("/v1/jobs/claim", "", &body);
            let Some(job) = claimed["jobs"].get(0) else {
                clock.advance_ms(250);
                return None;
            };
            Some(
                json!({ "job_id": job["id"], "hold_id": hold, "token": job["token"], "traceparent": job["traceparent"] }),
            )
        })
    }

    pub fn report(&self, claimed: &Value, report: &Value) {
        let mut attempt = claimed.clone();
        attempt.as_object_mut().unwrap().remove("traceparent");
        attempt["report"] = report.clone();
        let said = self.post("/v1/jobs/report-batch", "", &json!({ "reports": [attempt] }));
        assert!(said["results"][0].get("ok").is_some(), "{said}");
    }
}

/// Waits until something can be seen. The order of events is never left to this: only their arrival.
pub fn eventually<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(seen) = seen() {
            return seen;
        }
        assert!(began.elapsed() < Duration::from_secs(60), "never seen: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}
