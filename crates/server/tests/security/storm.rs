//! R30: everybody comes back at once. No tenant starves, and renewals pass before anything else.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fencehold_server::Options;
use fencehold_server::access::Scope;
use serde_json::{Value, json};

use crate::stage::{Stage, hear, held, hold, send};

const LOUD_LEASES: u64 = 500;
const LOUD_CONNECTIONS: usize = 40;

/// Ends the storm, also when the test fails in the middle of it.
struct Calm<'a>(&'a AtomicBool);

impl Drop for Calm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_quiet_tenant_keeps_its_lease_while_a_loud_one_storms() {
    let mut options = Options::default();
    // Little room, so that there is something to wait for on a machine of any size.
    options.limits.lane_room = LOUD_LEASES;
    let stage = Arc::new(Stage::in_real_time(options));
    let (loud, quiet) =
        (stage.token(Some("loud"), &[Scope::Admin]), stage.token(Some("quiet"), &[Scope::Admin]));
    let fence = stage.acquire(&quiet, "mine", 1, 5_000);
    // Renewals of as much as there is room for, each: one at a time, were it not for fairness.
    let holds: Vec<Value> = (0..LOUD_LEASES).map(|nth| held(&format!("k/{nth}"), 2, 1)).collect();
    let storm = json!({ "holds": holds });
    let over = Arc::new(AtomicBool::new(false));
    let answered = Arc::new(AtomicU64::new(0));
    let headers = loud.headers();
    std::thread::scope(|scope| {
        let calm = Calm(&over);
        for _ in 0..LOUD_CONNECTIONS {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let said = stage.ask_with(&headers, "POST", "/v1/leases/renew", Some(&storm));
                    assert!([200, 503].contains(&said.status), "{}", said.status);
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let began = Instant::now();
        let mut longest = Duration::ZERO;
        let mut renewals = 0;
        while began.elapsed() < Duration::from_secs(6) {
            let sent = Instant::now();
            let said = stage.post(&quiet, "/v1/leases/renew", json!({ "holds": [held("mine", 1, fence)] }));
            assert!(said.json["answers"][0].get("ok").is_some(), "the quiet one lost its lease: {said:?}");
            longest = longest.max(sent.elapsed());
            renewals += 1;
            std::thread::sleep(Duration::from_millis(100));
        }
        drop(calm);
        let storm = answered.load(Ordering::Relaxed);
        println!("{renewals} renewals, the slowest in {longest:?}, beside {storm} of the storm");
        assert!(longest < Duration::from_secs(2), "a renewal took {longest:?}");
    });
}

#[test]
fn renewals_pass_while_the_ordinary_lane_is_full() {
    let mut options = Options::default();
    options.limits.lane_room = 1;
    options.limits.lane_line = 0;
    let stage = Stage::in_real_time(options);
    let token = stage.token(Some("team"), &[Scope::Admin]);
    let operator = stage.token(None, &[Scope::Admin]);
    let fence = stage.acquire(&token, "mine", 1, 30_000);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let calm = Calm(&over);
        for number in 0..8_u8 {
            let (stage, token, over) = (&stage, &token, &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    let mut stream: TcpStream = stage.connect();
                    let keys: Vec<String> = (0..200).map(|nth| format!("{number}/{nth}")).collect();
                    let body = json!({ "keys": keys, "hold": hold(number), "owner": "o", "ttl_ms": 100 });
                    send(&mut stream, &token.headers(), "POST", "/v1/leases/acquire", Some(&body));
                    hear(stream);
                }
            });
        }
        let mut shed = 0.0;
        let began = Instant::now();
        let mut renewed = 0;
        while (shed < 1.0 || renewed < 50) && began.elapsed() < Duration::from_secs(30) {
            let said = stage.post(&token, "/v1/leases/renew", json!({ "holds": [held("mine", 1, fence)] }));
            assert!(said.json["answers"][0].get("ok").is_some(), "{said:?}");
            renewed += 1;
            shed = stage.metric(&operator, "fencehold_limit_refused_total{limit=\"lane_ordinary\"}");
        }
        drop(calm);
        assert!(shed >= 1.0, "the ordinary lane was never full");
        let renewals_shed = stage.metric(&operator, "fencehold_limit_refused_total{limit=\"lane_renewals\"}");
        assert!(renewals_shed < 0.5, "{renewals_shed} renewals were shed");
    });
}
