//! Whatever is sent as a request, or written as settings, is answered or refused by name: nothing panics, and no input is
//! the server's own fault.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use fencehold_contract::clock::ManualClock;
use fencehold_contract::http::{ALL, Method};
use fencehold_engine::MemoryStore;
use fencehold_server::Server;
use fencehold_server::access::Access;
use fencehold_server::config::ConfigValues;
use fencehold_test_servers::{Edit, edited};
use tower::ServiceExt as _;

const BODIES: &[&[u8]] = &[
    br#"{"key":"reports/daily","hold_id":"00112233445566778899aabbccddeeff","owner":"ada","task":"run-42","ttl_ms":30000}"#,
    br#"{"any_of":["reports/daily","reports/weekly"],"hold_id":"00112233445566778899aabbccddeeff","owner":"ada","ttl_ms":30000}"#,
    br#"{"key":"k","hold_id":"00112233445566778899aabbccddeeff","token":1}"#,
    br#"{"holds":[{"key":"k","hold_id":"00112233445566778899aabbccddeeff","token":1}]}"#,
    br#"{"key":"k","by":"ada","reason":"wrong branch"}"#,
    br#"{"selector":{"type":"prefix","prefix":"reports/"},"by":"ada","reason":"wrong branch"}"#,
    br#"{"selector":{"type":"task_prefix","task_prefix":"run-42"},"by":"ada","reason":"wrong branch"}"#,
    br#"{"queue":"emails","kind":"welcome","payload":{"to":"ada@example.org"},"options":{"priority":3},"labels":{"a":"b"}}"#,
    br#"{"jobs":[{"queue":"emails","kind":"welcome","payload":{"to":"ada@example.org"},"options":{"priority":3},"labels":{"a":"b"}}]}"#,
    br#"{"job_id":"01935f6e-7b00-7000-8000-000000000000","hold_id":"00112233445566778899aabbccddeeff","token":1,"report":{"type":"complete","result":7}}"#,
    br#"{"job_id":"01935f6e-7b00-7000-8000-000000000000","hold_id":"00112233445566778899aabbccddeeff","token":1,"entry":{"type":"begin","effect":"e"}}"#,
    br#"{"selector":{"type":"filter","states":["failed"]},"by":"ada","dry_run":true,"limit":10}"#,
    br#"{"queues":[{"queue":"emails","weight":2}],"limit":10,"hold_id":"00112233445566778899aabbccddeeff","owner":"ada","ttl_ms":30000}"#,
    br#"{"name":"nightly","cron":"0 3 * * *","time_zone":"Europe/Berlin","queue":"q","kind":"k","payload":{},"by":"ada"}"#,
    br#"{"operations":[{"type":"acquire_lease","request":{"key":"k","hold_id":"00112233445566778899aabbccddeeff","owner":"ada","ttl_ms":30000}},{"type":"enqueue_job","request":{"kind":"k"}},{"type":"release_lease","request":{"key":"k","hold_id":"00112233445566778899aabbccddeeff","token":1}}]}"#,
    b"{}",
];

/// Every operation, with every body: no answer says that the server itself went wrong.
#[test]
fn a_request_is_answered_or_refused_and_never_the_servers_fault() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::open(Arc::new(clock.clone())).unwrap());
    let router = Server::new(store, Arc::new(clock), Access::default()).router();
    let serving = std::panic::AssertUnwindSafe((runtime, router));
    bolero::check!().with_type::<(u8, u8, Vec<Edit>, Vec<Edit>)>().for_each(
        |(which, body, edits, path_edits)| {
            let (runtime, router) = &*serving;
            let spec = ALL[usize::from(*which) % ALL.len()];
            let path = edited(&[spec.path.replace(['{', '}'], "").as_bytes()], 0, path_edits);
            let method = match spec.method {
                Method::Get => "GET",
                Method::Post => "POST",
            };
            let request = Request::builder()
                .method(method)
                .uri(path.as_slice())
                .header("content-type", "application/json")
                .body(Body::from(edited(BODIES, *body, edits)));
            // What is no request gets no further than the parser of HTTP.
            let Ok(request) = request else { return };
            let answer = runtime.block_on(async {
                // One who waits in line is not waited for.
                tokio::time::timeout(Duration::from_millis(200), router.clone().oneshot(request)).await
            });
            if let Ok(Ok(answer)) = answer {
                assert!(
                    answer.status().as_u16() < 500 || answer.status().as_u16() == 501,
                    "{spec:?}: {answer:?}"
                );
            }
        },
    );
}

const SETTINGS: &[&[u8]] = &[
    b"listen = \"127.0.0.1:7117\"\nstore = \"file:/var/lib/fencehold\"\n[tls]\ncert = \"a\"\nkey = \"b\"\n",
    b"[limits]\nconnections = 10000\nbody_bytes = 1048576\n[log]\nformat = \"json\"\n",
    b"[traces]\notlp = \"http://127.0.0.1:4318\"\n",
];

#[test]
fn settings_are_read_or_refused() {
    let room = tempfile::tempdir().unwrap();
    let file = room.path().join("server.toml");
    bolero::check!().with_type::<(u8, Vec<Edit>)>().for_each(|(which, edits)| {
        std::fs::write(&file, edited(SETTINGS, *which, edits)).unwrap();
        let mut told = ConfigValues::default();
        if let Err(error) = told.file(&file) {
            assert!(!error.to_string().is_empty());
        }
        let _ = told.settings();
    });
}
