//! A server that asks for no token, and a browser on the same machine.

use std::io::Write as _;
use std::sync::Arc;

use fencehold_contract::clock::ManualClock;
use fencehold_engine::MemoryStore;
use fencehold_server::ServerOptions;
use fencehold_server::access::{Access, Scope};
use serde_json::json;

use super::fixture::{SecurityFixture, acquire, eventually, hear};

/// Names under which a page of another site cannot reach it: DNS gives these to no other host.
const OURS: [&str; 6] =
    ["localhost", "LOCALHOST:7117", "app.localhost:80", "127.0.0.1:7117", "[::1]:7117", "192.0.2.7:7117"];

#[test]
fn an_open_server_answers_to_no_name_that_dns_could_give_to_another() {
    let fixture = SecurityFixture::open(ServerOptions::default());
    for host in OURS {
        let said = fixture.ask_head(&format!("host: {host}\r\n"), "/v1/leases");
        assert_eq!(said.status, 200, "{host}: {said:?}");
    }
    for host in
        ["rebound.example", "rebound.example:7117", "localhost.example", "127.0.0.1.example", "", "[::1"]
    {
        for path in ["/v1/leases", "/v1/events/stream", "/metrics", "/v1/store/capabilities"] {
            let said = fixture.ask_head(&format!("host: {host}\r\n"), path);
            assert_eq!((said.status, said.kind()), (403, "host-not-allowed"), "{host} {path}: {said:?}");
        }
    }
    // A proxy's form of a request names its host in the first line, and that counts.
    let said = fixture.ask_head("host: localhost\r\n", "http://rebound.example/v1/leases");
    assert_eq!(said.status, 403, "{said:?}");
    let said = fixture.ask_head("host: localhost\r\nhost: rebound.example\r\n", "/v1/leases");
    assert!(matches!(said.status, 400 | 403), "{said:?}");
    // What tells nothing is for everybody.
    assert_eq!(fixture.ask_head("host: rebound.example\r\n", "/livez").status, 200);
}

#[test]
fn an_open_server_refuses_what_a_page_of_another_origin_sends() {
    let fixture = SecurityFixture::open(ServerOptions::default());
    let ask = |origin: &str| {
        fixture.ask_head(&format!("host: 127.0.0.1:7117\r\norigin: {origin}\r\n"), "/v1/leases")
    };
    assert_eq!(ask("http://127.0.0.1:7117").status, 200);
    for origin in ["http://site.example", "null", "http://127.0.0.1:3000", "http://localhost:7117", "x"] {
        let said = ask(origin);
        assert_eq!((said.status, said.kind()), (403, "host-not-allowed"), "{origin}: {said:?}");
    }
}

#[test]
fn names_that_were_configured_are_answered_to() {
    let mut options = ServerOptions::default();
    options.allowed_hosts = vec!["leases.internal".to_owned()];
    let fixture = SecurityFixture::open(options);
    let head = "host: Leases.internal:7117\r\norigin: http://leases.internal\r\n";
    assert_eq!(fixture.ask_head(head, "/v1/leases").status, 200);
    let said = fixture.ask_head("host: other.internal\r\n", "/v1/leases");
    assert_eq!(said.status, 403);
    assert!(said.body.contains("other.internal") && said.body.contains("allowed_hosts"), "{said:?}");
}

#[test]
fn with_tokens_any_name_may_stand_in_front_of_it() {
    let fixture = SecurityFixture::new();
    let token = fixture.token(None, &[Scope::LeaseRead]);
    let head = format!("host: leases.example\r\norigin: https://console.example\r\n{}", token.headers());
    assert_eq!(fixture.ask_head(&head, "/v1/leases").status, 200);
}

/// The first token closes it: for those who come, for those who wait, and for good.
#[test]
fn an_open_server_asks_for_tokens_from_the_first_one_on() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::open(Arc::new(clock.clone())).unwrap());
    let fixture = SecurityFixture::by(Access::until_tokens, ServerOptions::default(), store, clock);
    let local = "host: localhost\r\n";
    assert_eq!(fixture.ask_head(local, "/v1/leases").status, 200);
    let mut waiting = fixture.connect();
    write!(waiting, "GET /v1/events?cursor=0&wait_ms=60000 HTTP/1.1\r\n{local}connection: close\r\n\r\n")
        .unwrap();
    let mut made = fixture.connect();
    let body = json!({
        "id": "aabbccddeeff", "secret_sha256": "ab".repeat(32), "name": "first", "scopes": ["admin"],
    })
    .to_string();
    let length = body.len();
    write!(
        made,
        "POST /v1/access-tokens/create HTTP/1.1\r\n{local}connection: close\r\ncontent-type: application/json\r\n\
        content-length: {length}\r\n\r\n{body}"
    )
    .unwrap();
    assert_eq!(hear(made).status, 200);
    assert_eq!(fixture.ask_head(local, "/v1/leases").status, 401, "the token is in force with the answer");
    let sent_home = hear(waiting);
    assert!(matches!(sent_home.status, 401 | 403), "{sent_home:?}");
    // Another file in its place, with no token in it.
    let path = fixture.token_db().path().to_owned();
    for suffix in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{suffix}", path.display()));
    }
    drop(fixture.token_db());
    eventually("the new file is read", || fixture.ask_head(local, "/v1/leases").status == 401);
    assert_eq!(fixture.ask_head(local, "/v1/leases").status, 401);
}

/// A balancer sends no requests here while nothing is granted, and comes back when that is over.
#[test]
fn a_store_that_is_closed_by_an_advance_is_not_ready() {
    let fixture = SecurityFixture::new();
    let operator = fixture.operator();
    fixture.acquire(&operator, "k", 1, 86_400_000);
    assert_eq!(fixture.post(&operator, "/v1/store/advance", json!({ "by": "tester" })).status, 200);
    let ready = fixture.ask_with("", "GET", "/readyz", None);
    assert_eq!(ready.status, 503, "{ready:?}");
    assert!(ready.head.contains("retry-after: 86400"), "{ready:?}");
    let said = fixture.post(&operator, "/v1/leases/acquire", acquire("k", 2, 30_000));
    assert!(said.status == 503 && said.head.contains("retry-after: 86400"), "{said:?}");
    fixture.clock.advance_ms(86_400_000);
    eventually("it is ready again", || fixture.ask_with("", "GET", "/readyz", None).status == 200);
}
