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
use fencehold_server::access::Scope;
use serde_json::json;

use super::fixture::{SecurityFixture, TestToken, acquire, eventually, hear, held, hold, send, waits};
use super::rights::JOB;

#[test]
fn a_body_of_ten_megabytes_is_refused_by_its_length_and_by_its_bytes() {
    let mut options = ServerOptions::default();
    options.limits.body_bytes = 8_000_000;
    let fixture = SecurityFixture::with(options);
    let token = fixture.token(Some("team"), &[Scope::Admin]);
    let operator = fixture.token(None, &[Scope::Admin]);
    let large = 10_000_000;
    let head = |more: &str| {
        format!(
            "POST /v1/jobs/enqueue-batch HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{}content-type: application/json\r\n{more}\r\n",
            token.headers()
        )
    };
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
    let head = "POST /v1/jobs/enqueue-batch HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";
    stranger
        .write_all(format!("{head}content-length: 1000000\r\n\r\n").as_bytes())
        .unwrap();
    assert_eq!(hear(stranger).status, 401, "nothing is read for one who may not ask");
    fixture.acquire(&token, "k", 1, 30_000);
}

#[test]
fn ten_megabytes_of_nothing_are_read_refused_and_forgotten() {
    let fixture = SecurityFixture::new();
    let token = fixture.token(Some("team"), &[Scope::Admin]);
    let operator = fixture.token(None, &[Scope::Admin]);
    let mut stream = fixture.connect();
    let large = 10_000_000;
    let head = "POST /v1/jobs/enqueue-batch HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n";
    write!(stream, "{head}{}content-length: {large}\r\n\r\n", token.headers()).unwrap();
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
    let mut slow: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = fixture.connect();
            stream.write_all(begun.as_bytes()).unwrap();
            stream
        })
        .collect();
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
    let mut options = ServerOptions::default();
    options.limits.header_ms = 1_000;
    let fixture = SecurityFixture::with(options);
    let token = fixture.token(Some("team"), &[Scope::Admin]);
    are_cut_off(&fixture, &token, "GET /livez HTTP/1.1\r\nhost: x\r\nx-slow: ");
}

#[test]
fn slow_bodies_are_cut_off_and_cost_nobody_anything() {
    let mut options = ServerOptions::default();
    options.limits.body_ms = 1_000;
    let fixture = SecurityFixture::with(options);
    let token = fixture.token(Some("team"), &[Scope::Admin]);
    let head = "POST /v1/jobs/enqueue-batch HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    are_cut_off(&fixture, &token, &format!("{head}{}content-length: 1000000\r\n\r\n", token.headers()));
    let operator = fixture.token(None, &[Scope::Admin]);
    eventually("their memory is free", || {
        fixture.metric(&operator, "fencehold_limit_used{limit=\"total_body_bytes\"}") < 1.0
    });
}

#[test]
fn over_the_limit_a_connection_gets_503_and_those_that_wait_live_on() {
    let mut options = ServerOptions::default();
    options.limits.connections = 20;
    let fixture = SecurityFixture::with(options);
    let token = fixture.token(Some("team"), &[Scope::Admin]);
    let fence = fixture.acquire(&token, "k", 1, 60_000);
    // One stands in line, on a connection that it keeps; another will give the key back on the one that it has.
    let mut waiting = fixture.connect();
    let body = waits(acquire("k", 2, 60_000));
    send(&mut waiting, &token.headers(), "POST", "/v1/leases/acquire", Some(&body));
    let operator = fixture.token(None, &[Scope::Admin]);
    eventually("it waits", || fixture.shows(&operator, "fencehold_requests_waiting", 1.0));
    let mut holder = fixture.connect();
    let idle: Vec<TcpStream> = (0..18).map(|_| fixture.connect()).collect();
    // The server has taken all of them when the next one is turned away.
    let mut turned_away = None;
    eventually("one more is turned away", || {
        let mut stream = fixture.connect();
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        let said = hear(stream);
        let away = said.status == 503;
        turned_away = Some(said);
        away
    });
    let said = turned_away.unwrap();
    assert_eq!(said.kind(), "unavailable", "{said:?}");
    assert!(said.head.contains("retry-after: 1"), "{said:?}");
    send(
        &mut holder,
        &token.headers(),
        "POST",
        "/v1/leases/release-batch",
        Some(&json!({ "holds": [held("k", 1, fence)] })),
    );
    assert_eq!(hear(holder).status, 200, "who is connected is served");
    let granted = hear(waiting);
    assert_eq!(granted.status, 200, "{granted:?}");
    drop(idle);
    eventually("there is room again", || {
        let mut stream = fixture.connect();
        let _ = stream.write_all(b"GET /livez HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        hear(stream).status == 200
    });
}

#[test]
fn a_caller_over_its_pace_gets_429_with_when_to_come_back_and_its_renewals_still_pass() {
    let mut options = ServerOptions::default();
    options.limits.requests_per_second = 5;
    options.limits.renewals_per_second = 100;
    let fixture = SecurityFixture::with(options);
    let (loud, quiet) =
        (fixture.token(Some("a"), &[Scope::Admin]), fixture.token(Some("b"), &[Scope::Admin]));
    fixture.clock.advance(10_000);
    let fence = fixture.acquire(&loud, "k", 1, 30_000);
    let said = (0..20)
        .map(|_| fixture.ask(&loud, "GET", "/v1/leases", None))
        .find(|said| said.status != 200)
        .unwrap();
    assert_eq!((said.status, said.kind()), (429, "rate-limited"), "{said:?}");
    assert!(said.head.contains("retry-after: 1"), "{said:?}");
    assert_eq!(said.json["retry_after_ms"], 200);
    let renewed = fixture.post(&loud, "/v1/leases/renew-batch", json!({ "holds": [held("k", 1, fence)] }));
    assert!(renewed.json["results"][0].get("ok").is_some(), "{renewed:?}");
    let renewed = fixture.post(&loud, "/v1/leases/renew", held("k", 1, fence));
    assert_eq!(renewed.status, 200, "one is as good as a batch: {renewed:?}");
    let attempt = json!({ "job_id": JOB, "hold_id": hold(2), "token": 1 });
    assert_eq!(fixture.post(&loud, "/v1/jobs/renew", attempt).status, 404, "of an attempt too");
    assert_eq!(fixture.ask(&quiet, "GET", "/v1/leases", None).status, 200, "another's pace is another's");
    fixture.clock.advance(200);
    assert_eq!(fixture.ask(&loud, "GET", "/v1/leases", None).status, 200);
}

#[test]
fn a_caller_has_so_many_waiting_requests_and_no_more() {
    let mut options = ServerOptions::default();
    options.limits.waiting_per_access_token = 3;
    let fixture = SecurityFixture::with(options);
    let token = fixture.token(Some("team"), &[Scope::Admin]);
    let operator = fixture.token(None, &[Scope::Admin]);
    fixture.acquire(&token, "k", 1, 60_000);
    let wait = |number: u8| waits(acquire("k", number, 60_000));
    let waiting: Vec<TcpStream> = (2..5)
        .map(|number| {
            let mut stream = fixture.connect();
            send(&mut stream, &token.headers(), "POST", "/v1/leases/acquire", Some(&wait(number)));
            stream
        })
        .collect();
    eventually("all seats are taken", || fixture.shows(&operator, "fencehold_requests_waiting", 3.0));
    let said = fixture.post(&token, "/v1/leases/acquire", wait(5));
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
    let mut options = ServerOptions::default();
    options.limits.connections = 100;
    let fixture = SecurityFixture::with(options);
    let token = fixture.token(Some("team"), &[Scope::Admin]);
    let operator = fixture.token(None, &[Scope::Admin]);
    let fence = fixture.acquire(&token, "k", 1, 60_000);
    let stand = |number: u8| {
        let mut stream = fixture.connect();
        let body = waits(acquire("k", number, 60_000));
        send(&mut stream, &token.headers(), "POST", "/v1/leases/acquire", Some(&body));
        stream
    };
    let waiting: Vec<TcpStream> = (2..92).map(stand).collect();
    eventually("all seats are taken", || fixture.shows(&operator, "fencehold_requests_waiting", 90.0));
    let said = hear(stand(92));
    assert_eq!((said.status, said.kind()), (429, "limit-reached"), "{said:?}");
    for _ in 0..10 {
        let renewed =
            fixture.post(&token, "/v1/leases/renew-batch", json!({ "holds": [held("k", 1, fence)] }));
        assert!(renewed.json["results"][0].get("ok").is_some(), "{renewed:?}");
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
    let token = fixture.token(Some("team"), &[Scope::Admin]);
    let operator = fixture.token(None, &[Scope::Admin]);
    fixture.acquire(&token, "k", 1, 60_000);
    let mut waiting = fixture.connect();
    let body = waits(acquire("k", 2, 60_000));
    send(&mut waiting, &token.headers(), "POST", "/v1/leases/acquire", Some(&body));
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
