//! Limits, and that a client over one takes nothing from the others.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::{CallContext, LeaseStore as _};
use fencehold_core::{Key, Namespace};
use fencehold_engine::MemoryStore;
use fencehold_server::ServerOptions;
use serde_json::json;

use super::fixture::{SecurityFixture, TestToken, eventually, hear, held, hold, send};
use super::rights::JOB;
use crate::plain_client;

/// The head of a request that enqueues, as far as it is the same for every caller.
const ENQUEUE: &str = "POST /v1/jobs/enqueue-batch HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";

#[test]
fn a_body_of_ten_megabytes_is_refused_by_its_length_and_by_its_bytes() {
    let fixture = SecurityFixture::limited(|limits| limits.body_bytes = 8_000_000);
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    let large = 10_000_000;
    let head = |more: &str| format!("{ENQUEUE}{}{more}\r\n", token.headers());
    let mut by_length = fixture.connect();
    by_length
        .write_all(head(&format!("content-length: {large}\r\n")).as_bytes())
        .unwrap();
    let said = hear(by_length);
    assert_eq!((said.status, said.kind()), (413, "body-too-large"), "before a byte of it was sent: {said:?}");

    let mut by_bytes = fixture.connect();
    by_bytes.write_all(head("transfer-encoding: chunked\r\n").as_bytes()).unwrap();
    let chunk = vec![b' '; 100_000];
    let mut sent = 0;
    while sent < large
        && write!(by_bytes, "{:x}\r\n", chunk.len())
            .and_then(|()| by_bytes.write_all(&chunk))
            .and_then(|()| by_bytes.write_all(b"\r\n"))
            .is_ok()
    {
        sent += chunk.len();
    }
    let said = hear(by_bytes);
    // The server stops reading; a caller that goes on writing may find the connection reset before it reads the answer.
    assert!([413, 0].contains(&said.status), "{said:?}");
    assert!(fixture.metric(&operator, "fencehold_limit_refused_total{limit=\"body_bytes\"}") >= 2.0);

    let mut stranger = fixture.connect();
    write!(stranger, "{ENQUEUE}content-length: 1000000\r\n\r\n").unwrap();
    assert_eq!(hear(stranger).status, 401, "nothing is read for one who may not ask");
    fixture.acquire(&token, "k", 1, 30_000);
}

#[test]
fn ten_megabytes_of_nothing_are_read_refused_and_forgotten() {
    let fixture = SecurityFixture::new();
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    let mut stream = fixture.connect();
    let large = 10_000_000;
    write!(stream, "{ENQUEUE}{}content-length: {large}\r\n\r\n", token.headers()).unwrap();
    stream.write_all(&vec![b' '; large]).unwrap();
    let said = hear(stream);
    assert_eq!((said.status, said.kind()), (400, "bad-input"), "{said:?}");
    eventually("its memory is free", || {
        fixture.metric(&operator, "fencehold_limit_used{limit=\"total_body_bytes\"}") < 1.0
    });
    fixture.acquire(&token, "k", 1, 30_000);
}

/// Two hundred who have sent so much go on with one byte at a time, for ever; and after each, another client is served. Without a limit
/// of ours they may be cut off too, by those of the machinery beneath, which are thirty seconds.
fn are_cut_off(fixture: &SecurityFixture, token: &TestToken, begun: &str) {
    let mut slow: Vec<TcpStream> = (0..200).map(|_| fixture.connect()).collect();
    for stream in &mut slow {
        stream.write_all(begun.as_bytes()).unwrap();
    }
    let started = std::time::Instant::now();
    eventually("all of them are cut off", || {
        assert!(started.elapsed() < Duration::from_secs(25), "{} are still there", slow.len());
        slow.retain_mut(|stream| stream.write_all(b"x").is_ok());
        assert_eq!(fixture.ask(token, "GET", "/v1/leases", None).status, 200);
        slow.is_empty()
    });
}

#[test]
fn slow_headers_are_cut_off_and_cost_nobody_anything() {
    let fixture = SecurityFixture::limited(|limits| limits.header_ms = 1_000);
    let token = fixture.admin("team");
    are_cut_off(&fixture, &token, "GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ");
}

#[test]
fn slow_bodies_are_cut_off_and_cost_nobody_anything() {
    let fixture = SecurityFixture::limited(|limits| limits.body_ms = 1_000);
    let token = fixture.admin("team");
    are_cut_off(&fixture, &token, &format!("{ENQUEUE}{}content-length: 1000000\r\n\r\n", token.headers()));
    let operator = fixture.operator();
    eventually("their memory is free", || {
        fixture.metric(&operator, "fencehold_limit_used{limit=\"total_body_bytes\"}") < 1.0
    });
}

#[test]
fn over_the_limit_a_connection_gets_503_and_those_that_wait_live_on() {
    let fixture = SecurityFixture::limited(|limits| limits.connections = 20);
    let token = fixture.admin("team");
    let fence = fixture.acquire(&token, "k", 1, 60_000);
    // One stands in line, on a connection that it keeps; another will give the key back on the one that it has.
    let waiting = fixture.stands(&token, "k", 2);
    let operator = fixture.operator();
    eventually("it waits", || fixture.shows(&operator, "fencehold_requests_waiting", 1.0));
    let mut holder = fixture.connect();
    let idle: Vec<TcpStream> = (0..18).map(|_| fixture.connect()).collect();
    let alive = || {
        let mut stream = fixture.connect();
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        hear(stream)
    };
    // The server has taken all of them when the next one is turned away.
    let said = plain_client::eventually("one more is turned away", || {
        Some(alive()).filter(|said| said.status == 503)
    });
    assert_eq!(said.kind(), "unavailable", "{said:?}");
    assert!(said.head.contains("retry-after: 1"), "{said:?}");
    let release = json!({ "holds": [held("k", 1, fence)] });
    send(&mut holder, &token.headers(), "POST", "/v1/leases/release-batch", Some(&release));
    assert_eq!(hear(holder).status, 200, "who is connected is served");
    let granted = hear(waiting);
    assert_eq!(granted.status, 200, "{granted:?}");
    drop(idle);
    eventually("there is room again", || alive().status == 200);
}

#[test]
fn a_caller_over_its_pace_gets_429_with_when_to_come_back_and_its_renewals_still_pass() {
    let fixture = SecurityFixture::limited(|limits| {
        (limits.requests_per_second, limits.renewals_per_second) = (5, 100);
    });
    let (loud, quiet) = (fixture.admin("a"), fixture.admin("b"));
    fixture.clock.advance_ms(10_000);
    let fence = fixture.acquire(&loud, "k", 1, 30_000);
    let mut asked = (0..20).map(|_| fixture.ask(&loud, "GET", "/v1/leases", None));
    let said = asked.find(|said| said.status != 200).unwrap();
    assert_eq!((said.status, said.kind()), (429, "rate-limited"), "{said:?}");
    assert!(said.head.contains("retry-after: 1"), "{said:?}");
    assert_eq!(said.json["retry_after_ms"], 200);
    fixture.renews(&loud, "k", 1, fence);
    let renewed = fixture.post(&loud, "/v1/leases/renew", held("k", 1, fence));
    assert_eq!(renewed.status, 200, "one is as good as a batch: {renewed:?}");
    let attempt = json!({ "job_id": JOB, "hold_id": hold(2), "token": 1 });
    assert_eq!(fixture.post(&loud, "/v1/jobs/renew", attempt).status, 404, "of an attempt too");
    assert_eq!(fixture.ask(&quiet, "GET", "/v1/leases", None).status, 200, "another's pace is another's");
    fixture.clock.advance_ms(200);
    assert_eq!(fixture.ask(&loud, "GET", "/v1/leases", None).status, 200);
}

#[test]
fn a_caller_has_so_many_waiting_requests_and_no_more() {
    let fixture = SecurityFixture::limited(|limits| limits.waiting_per_access_token = 3);
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    fixture.acquire(&token, "k", 1, 60_000);
    let waiting: Vec<TcpStream> = (2..5).map(|number| fixture.stands(&token, "k", number)).collect();
    eventually("all seats are taken", || fixture.shows(&operator, "fencehold_requests_waiting", 3.0));
    let said = hear(fixture.stands(&token, "k", 5));
    assert_eq!(said.status, 429, "{said:?}");
    assert!(said.head.contains("retry-after"), "{said:?}");
    assert!(fixture.shows(&operator, "fencehold_limit_refused_total{limit=\"waiting\"}", 1.0));
    // A client that goes away leaves the line, and its seat.
    drop(waiting);
    eventually("all seats are free", || fixture.shows(&operator, "fencehold_requests_waiting", 0.0));
}

/// Each that waits keeps its connection; some are left for those who do not.
#[test]
fn those_who_wait_never_have_all_the_connections() {
    let fixture = SecurityFixture::limited(|limits| limits.connections = 100);
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    let fence = fixture.acquire(&token, "k", 1, 60_000);
    let waiting: Vec<TcpStream> = (2..92).map(|number| fixture.stands(&token, "k", number)).collect();
    eventually("all seats are taken", || fixture.shows(&operator, "fencehold_requests_waiting", 90.0));
    let said = hear(fixture.stands(&token, "k", 92));
    assert_eq!((said.status, said.kind()), (429, "limit-reached"), "{said:?}");
    for _ in 0..10 {
        fixture.renews(&token, "k", 1, fence);
    }
    drop(waiting);
}

#[test]
fn when_the_server_stops_whoever_waits_is_sent_home_and_what_is_held_stays_held() {
    let clock = ManualClock::new();
    let store = Arc::new(MemoryStore::open(Arc::new(clock.clone())).unwrap());
    let mut options = ServerOptions::default();
    options.grace = Duration::from_secs(40);
    let grace = options.grace;
    let fixture = SecurityFixture::over(options, store.clone(), clock);
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    fixture.acquire(&token, "k", 1, 60_000);
    let waiting = fixture.stands(&token, "k", 2);
    eventually("it waits", || fixture.shows(&operator, "fencehold_requests_waiting", 1.0));
    let _idle = fixture.connect();
    // An idle connection, and one that waits, are no reason to make use of the grace.
    let started = std::time::Instant::now();
    drop(fixture);
    assert!(started.elapsed() < grace / 2, "stopping took {:?}", started.elapsed());
    let said = hear(waiting);
    assert_eq!((said.status, said.kind()), (503, "stopping"), "{said:?}");
    let call = CallContext::new(Namespace::new("team").unwrap());
    let looked = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let view = looked.block_on(store.get(&call, Key::new("k").unwrap())).unwrap().unwrap();
    assert!(view.holder.is_some_and(|holder| holder.owner.as_str() == "tester"), "it is not held any more");
    assert_eq!(view.waiter_count, 0);
}
