//! The trace of one job, from its enqueuing over a crash and a retry to its completion, as a receiver of OTLP gets it.
#![allow(clippy::disallowed_methods, reason = "real sockets live in real time")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use fencehold_contract::clock::ManualClock;
use fencehold_contract::http::{HttpOperation as _, op};
use fencehold_server::{Receiver, ServerOptions};
use fencehold_test_servers::certificate;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::plain_client::{self, PlainClient, eventually};

const CALLERS_TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLERS_SPAN: &str = "b7ad6b7169203331";

/// A message of protobuf, taken apart by nothing but the wire format: what each number means is said by OTLP's own files.
#[derive(Clone, Debug, Default)]
struct Message(BTreeMap<u64, Vec<Field>>);

#[derive(Clone, Debug)]
enum Field {
    Number(u64),
    Bytes(Vec<u8>),
}

impl Message {
    fn read(mut bytes: &[u8]) -> Message {
        let mut fields: BTreeMap<u64, Vec<Field>> = BTreeMap::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let field = match key & 7 {
                0 => Field::Number(varint(&mut bytes)),
                1 => {
                    let (number, rest) = bytes.split_at(8);
                    bytes = rest;
                    Field::Number(u64::from_le_bytes(number.try_into().unwrap()))
                }
                2 => {
                    let length = usize::try_from(varint(&mut bytes)).unwrap();
                    let (inner, rest) = bytes.split_at(length);
                    bytes = rest;
                    Field::Bytes(inner.to_vec())
                }
                other => panic!("a wire type that OTLP does not use: {other}"),
            };
            fields.entry(key >> 3).or_default().push(field);
        }
        Message(fields)
    }

    fn all(&self, number: u64) -> Vec<Message> {
        let bytes = |field: &Field| match field {
            Field::Bytes(bytes) => Message::read(bytes),
            Field::Number(_) => panic!("field {number} is no message"),
        };
        self.0.get(&number).into_iter().flatten().map(bytes).collect()
    }

    fn bytes(&self, number: u64) -> Vec<u8> {
        match self.0.get(&number).and_then(|fields| fields.first()) {
            Some(Field::Bytes(bytes)) => bytes.clone(),
            _ => Vec::new(),
        }
    }

    fn text(&self, number: u64) -> String {
        String::from_utf8(self.bytes(number)).unwrap()
    }

    fn hex(&self, number: u64) -> String {
        let bytes = self.bytes(number);
        bytes.iter().fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"))
    }

    fn number(&self, number: u64) -> u64 {
        match self.0.get(&number).and_then(|fields| fields.first()) {
            Some(Field::Number(number)) => *number,
            _ => 0,
        }
    }
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut number = 0;
    for shift in 0.. {
        let (first, rest) = bytes.split_first().unwrap();
        *bytes = rest;
        number |= u64::from(first & 127) << (7 * shift);
        if first & 128 == 0 {
            break;
        }
    }
    number
}

#[derive(Clone, Debug)]
struct ReceivedSpan {
    trace: String,
    id: String,
    parent: String,
    name: String,
    kind: u64,
    start: u64,
    end: u64,
    attributes: BTreeMap<String, String>,
    links: Vec<(String, String)>,
    error: Option<String>,
}

/// By the numbers in opentelemetry/proto/trace/v1/trace.proto.
fn spans(body: &[u8]) -> Vec<ReceivedSpan> {
    let request = Message::read(body);
    let mut spans = Vec::new();
    for resource in request.all(1) {
        let named = |pair: &Message| pair.text(1) == "service.name" && pair.all(2)[0].text(1) == "shop";
        assert!(resource.all(1)[0].all(1).iter().any(named), "the service is not named");
        for span in resource.all(2).iter().flat_map(|scope| scope.all(2)) {
            let value = |pair: &Message| {
                let value = &pair.all(2)[0];
                if value.0.contains_key(&1) { value.text(1) } else { value.number(3).to_string() }
            };
            let failed = span.all(15).into_iter().next().filter(|status| status.number(3) == 2);
            spans.push(ReceivedSpan {
                trace: span.hex(1),
                id: span.hex(2),
                parent: span.hex(4),
                name: span.text(5),
                kind: span.number(6),
                start: span.number(7),
                end: span.number(8),
                attributes: span.all(9).iter().map(|pair| (pair.text(1), value(pair))).collect(),
                links: span.all(13).iter().map(|link| (link.hex(1), link.hex(2))).collect(),
                error: failed.map(|status| status.text(2)),
            });
        }
    }
    spans
}

/// A receiver of OTLP over HTTP.
fn receive() -> (SocketAddr, Arc<Mutex<Vec<ReceivedSpan>>>) {
    receive_over(|stream| stream)
}

/// A receiver that speaks only encrypted, with a certificate that no system trusts.
fn receive_encrypted() -> (SocketAddr, Arc<Mutex<Vec<ReceivedSpan>>>) {
    let pem = |name: &str| std::fs::read(certificate(name)).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(
            vec![CertificateDer::from_pem_slice(&pem("server.pem")).unwrap()],
            PrivateKeyDer::from_pem_slice(&pem("server.key")).unwrap(),
        )
        .unwrap();
    let config = Arc::new(config);
    receive_over(move |stream| StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream))
}

fn receive_over<S: Read + Write + Send + 'static>(
    dress: impl Fn(TcpStream) -> S + Send + 'static,
) -> (SocketAddr, Arc<Mutex<Vec<ReceivedSpan>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let received = Arc::new(Mutex::new(Vec::new()));
    let into = Arc::clone(&received);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, into) = (dress(stream.unwrap()), Arc::clone(&into));
            std::thread::spawn(move || take(stream, &into));
        }
    });
    (address, received)
}

fn take(stream: impl Read + Write, into: &Mutex<Vec<ReceivedSpan>>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut length = 0;
        let mut head = String::new();
        while reader.read_line(&mut head).unwrap_or(0) > 2 {
            let line = head.lines().last().unwrap_or_default().to_lowercase();
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
        }
        if head.is_empty() {
            return;
        }
        assert!(head.starts_with("POST /v1/traces HTTP/1.1"), "{head}");
        assert!(head.to_lowercase().contains("content-type: application/x-protobuf"), "{head}");
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        into.lock().unwrap().extend(spans(&body));
        reader
            .get_mut()
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            .unwrap();
    }
}

fn options(otlp: SocketAddr) -> ServerOptions {
    let mut options = ServerOptions::default();
    options.traces = Some(Receiver::new(&format!("http://{otlp}"), "shop", [7; 16]).unwrap());
    options
}

fn serve(otlp: SocketAddr, clock: &ManualClock) -> PlainClient {
    plain_client::serve(clock, move || options(otlp))
}

fn enqueue(client: &PlainClient, traceparent: &str) -> Value {
    let jobs = json!({ "jobs": [{ "queue": "q", "kind": "mail" }] });
    client.post("/v1/jobs/enqueue-batch", traceparent, &jobs)
}

fn is_enqueued(spans: &[ReceivedSpan]) -> bool {
    spans.iter().any(|span| span.name == op::EnqueueJobBatch::SPEC.name)
}

#[test]
fn a_server_that_ends_sends_the_last_of_its_spans_first() {
    let (otlp, received) = receive();
    let enqueues = |client: &PlainClient| drop(enqueue(client, ""));
    plain_client::serve_for(&ManualClock::new(), move || options(otlp), enqueues);
    let received = received.lock().unwrap();
    assert!(is_enqueued(&received), "{received:?}");
}

/// A server whose spans go to this receiver, which shows a certificate.
fn serve_over_tls(otlp: SocketAddr, authority: Option<PathBuf>) -> PlainClient {
    plain_client::serve(&ManualClock::new(), move || {
        let mut receiver = Receiver::new(&format!("https://{otlp}"), "shop", [7; 16]).unwrap();
        if let Some(file) = authority {
            receiver = receiver.trusting(&std::fs::read(file).unwrap()).unwrap();
        }
        let mut options = ServerOptions::default();
        options.traces = Some(receiver);
        options
    })
}

#[test]
fn spans_go_over_an_encrypted_connection_to_a_receiver_whose_authority_is_named() {
    let (otlp, received) = receive_encrypted();
    let client = serve_over_tls(otlp, Some(certificate("ca.pem")));
    enqueue(&client, "");
    eventually("the enqueuing", || is_enqueued(&received.lock().unwrap()).then_some(()));
}

#[test]
fn nothing_is_sent_to_a_receiver_that_nobody_vouches_for_and_what_is_dropped_is_counted() {
    let (otlp, received) = receive_encrypted();
    let client = serve_over_tls(otlp, None);
    enqueue(&client, "");
    eventually("spans that were dropped", || {
        let (_, page) = client.ask("GET", "/metrics", "", "");
        (!page.contains("\nfencehold_spans_dropped_total 0\n")).then_some(())
    });
    assert!(received.lock().unwrap().is_empty(), "a stranger got it");
}

#[test]
fn a_job_over_a_crash_and_a_retry_is_one_linked_story() {
    let (otlp, received) = receive();
    let clock = ManualClock::new();
    let client = serve(otlp, &clock);
    let traceparent = format!("00-{CALLERS_TRACE}-{CALLERS_SPAN}-01");
    enqueue(&client, &traceparent);
    // The first holder dies, the second reports an error, the third gets it done.
    let crashed = client.claim(1, &clock);
    clock.advance_ms(1_000);
    let failed = client.claim(2, &clock);
    client.report(&failed, &json!({ "type": "fail", "error": "no answer from the relay", "retry_in_ms": 0 }));
    let done = client.claim(3, &clock);
    clock.advance_ms(500);
    client.report(&done, &json!({ "type": "complete", "result": 7 }));

    let story = eventually("three attempts", || {
        let all = received.lock().unwrap().clone();
        (all.iter().filter(|span| span.name == "job_attempt").count() >= 3).then_some(all)
    });
    let is_enqueuing = |span: &&ReceivedSpan| span.name == op::EnqueueJobBatch::SPEC.name && span.kind == 4;
    let enqueued: Vec<&ReceivedSpan> = story.iter().filter(is_enqueuing).collect();
    let [enqueued] = enqueued.as_slice() else { panic!("not one enqueuing: {enqueued:?}") };
    assert_eq!((enqueued.trace.as_str(), enqueued.parent.as_str()), (CALLERS_TRACE, CALLERS_SPAN));
    assert_eq!(enqueued.attributes["messaging.message.id"], enqueued.attributes["fencehold.job_id"]);
    let mut attempts: Vec<&ReceivedSpan> = story.iter().filter(|span| span.name == "job_attempt").collect();
    attempts.sort_by_key(|span| span.attributes["fencehold.token"].parse::<u64>().unwrap());
    assert_eq!(attempts.len(), 3, "each attempt is reported once");
    for attempt in &attempts {
        assert_eq!(attempt.trace, CALLERS_TRACE, "all of it is one trace");
        assert_eq!(attempt.parent, enqueued.id, "every attempt hangs from the enqueuing");
        assert_eq!(attempt.kind, 5);
        assert_eq!(attempt.attributes["fencehold.kind"], "mail");
        assert_eq!(attempt.attributes["messaging.system"], "fencehold");
        assert_eq!(attempt.attributes["messaging.destination.name"], attempt.attributes["fencehold.queue"]);
        assert_eq!(attempt.attributes["messaging.message.id"], attempt.attributes["fencehold.job_id"]);
        assert!(attempt.start <= attempt.end && attempt.start > 0);
    }
    let outcome = |attempt: &&ReceivedSpan| attempt.attributes["fencehold.outcome"].clone();
    let ended: Vec<String> = attempts.iter().map(outcome).collect();
    assert_eq!(ended, ["crashed", "failed", "completed"]);
    let errors: Vec<Option<&str>> = attempts.iter().map(|attempt| attempt.error.as_deref()).collect();
    assert_eq!(errors, [Some("crashed"), Some("no answer from the relay"), None]);
    assert_eq!(attempts[0].links, []);
    // A retry is linked to what it retries.
    for nth in 1..3 {
        assert_eq!(attempts[nth].links, [(CALLERS_TRACE.to_owned(), attempts[nth - 1].id.clone())]);
    }
    assert_eq!(attempts[2].end - attempts[2].start, 500_000_000);
    // What a worker does hangs from its attempt.
    for (claimed, attempt) in [&crashed, &failed, &done].into_iter().zip(&attempts) {
        assert_eq!(claimed["traceparent"], format!("00-{CALLERS_TRACE}-{}-01", attempt.id));
    }
}

#[test]
fn the_life_of_a_plain_lease_is_one_trace_whether_or_not_its_holder_brings_one() {
    let (otlp, received) = receive();
    let client = serve(otlp, &ManualClock::new());
    let hold = "ab".repeat(16);
    let life = |key: &str, traceparent: &str| {
        let body = json!({ "key": key, "hold_id": hold, "owner": "o", "ttl_ms": 30_000 });
        let token = client.post("/v1/leases/acquire", traceparent, &body)["token"].clone();
        let holds = json!({ "holds": [{ "key": key, "hold_id": hold, "token": token }] });
        client.post("/v1/leases/renew-batch", traceparent, &holds);
        client.post("/v1/leases/release-batch", traceparent, &holds);
    };
    life("with", &format!("00-{CALLERS_TRACE}-{CALLERS_SPAN}-01"));
    life("without", "");
    life("unwanted", &format!("00-{}-{CALLERS_SPAN}-00", "1".repeat(32)));
    let all = eventually("two lives", || {
        let all = received.lock().unwrap().clone();
        (all.iter().filter(|span| span.name == op::ReleaseLeaseBatch::SPEC.name).count() >= 2).then_some(all)
    });
    let named = |name: &str| all.iter().filter(|span| span.name == name).cloned().collect::<Vec<_>>();
    let acquired = named(op::AcquireLease::SPEC.name);
    let (renewed, released) =
        (named(op::RenewLeaseBatch::SPEC.name), named(op::ReleaseLeaseBatch::SPEC.name));
    assert_eq!((acquired.len(), renewed.len(), released.len()), (2, 2, 2), "what is not wanted is not sent");
    for acquire in &acquired {
        let with = acquire.attributes["fencehold.key"] == "with";
        assert_eq!(acquire.parent, if with { CALLERS_SPAN } else { "" });
        assert_eq!(acquire.trace == CALLERS_TRACE, with);
        for later in [&renewed, &released] {
            let link = [(acquire.trace.clone(), acquire.id.clone())];
            let is_linked = |span: &ReceivedSpan| span.trace == acquire.trace && span.links == link;
            assert!(later.iter().any(is_linked), "{later:?}");
        }
    }
    let sent = format!("{all:?}");
    assert!(!sent.contains(&hold), "a hold id was sent away");
}

#[test]
fn each_operation_of_a_batch_has_a_span_of_its_own() {
    let (otlp, received) = receive();
    let client = serve(otlp, &ManualClock::new());
    let lease = json!({ "key": "k", "hold_id": "ab".repeat(16), "owner": "o", "ttl_ms": 30_000 });
    let operations = json!({ "operations": [
        { "type": "acquire_lease", "request": lease }, { "type": "enqueue_job", "request": { "kind": "mail" } },
    ] });
    client.post("/v1/batch", &format!("00-{CALLERS_TRACE}-{CALLERS_SPAN}-01"), &operations);
    for name in [op::AcquireLease::SPEC.name, op::EnqueueJob::SPEC.name] {
        let span =
            eventually(name, || received.lock().unwrap().iter().find(|span| span.name == name).cloned());
        assert_eq!((span.trace.as_str(), span.parent.as_str()), (CALLERS_TRACE, CALLERS_SPAN), "{span:?}");
    }
}
