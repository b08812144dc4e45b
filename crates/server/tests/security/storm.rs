//! R30: everybody comes back at once. No tenant starves, and renewals pass before anything else.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fencehold_core::Namespace;
use fencehold_server::Options;
use fencehold_server::access::Scope;
use fencehold_server::limit::Limits;
use fencehold_store::MemoryStore;
use fencehold_store::clock::ManualClock;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::gate::Gated;
use crate::stage::{Stage, eventually, hear, held, hold, send};

/// Ends the storm, also when the test fails in the middle of it.
struct Calm<'a>(&'a AtomicBool);

impl Drop for Calm<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Opens the gate, also when the test fails in the middle of it.
struct Open<'a>(&'a Gated);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.let_in.add_permits(STORM);
    }
}

/// How many renewals of how many leases each the loud tenant comes back with: more than twice what there is room for.
const STORM: usize = 20;
const LEASES_EACH: usize = 2_000;

#[test]
fn a_quiet_tenant_passes_the_storm_of_a_loud_one() {
    let lane = |what: &str| format!("fencehold_{what}");
    let (used, waiting) =
        (lane("limit_used{limit=\"lane_renewals\"}"), lane("lane_waiting{lane=\"renewals\"}"));
    let clock = ManualClock::new();
    let gated = Arc::new(Gated {
        store: MemoryStore::open(Arc::new(clock.clone())).unwrap(),
        tenant: Namespace::new("loud").unwrap(),
        let_in: Semaphore::new(0),
    });
    let stage = Stage::over(Options::default(), gated.clone(), clock);
    let (loud, quiet) =
        (stage.token(Some("loud"), &[Scope::Admin]), stage.token(Some("quiet"), &[Scope::Admin]));
    let operator = stage.token(None, &[Scope::Admin]);
    let fence = stage.acquire(&quiet, "mine", 1, 5_000);
    let holds: Vec<Value> = (0..LEASES_EACH).map(|nth| held(&format!("k/{nth}"), 2, 1)).collect();
    let storm = json!({ "holds": holds });
    std::thread::scope(|scope| {
        let open = Open(&gated);
        for _ in 0..STORM {
            scope.spawn(|| {
                let said = stage.post(&loud, "/v1/leases/renew", storm.clone());
                assert!([200, 503].contains(&said.status), "{}", said.status);
            });
        }
        let at_work = Limits::default().lane_room / LEASES_EACH as u64;
        let in_line = STORM as f64 - at_work as f64;
        eventually("the lane is full and the rest of the storm waits", || {
            stage.shows(&operator, &used, (at_work * LEASES_EACH as u64) as f64)
                && stage.shows(&operator, &waiting, in_line)
        });
        let renewal = json!({ "holds": [held("mine", 1, fence)] });
        let renewal = scope.spawn(|| stage.post(&quiet, "/v1/leases/renew", renewal));
        eventually("the quiet one stands behind them", || stage.shows(&operator, &waiting, in_line + 1.0));
        // Room for one. Were it given to the storm, the quiet one would wait for ever: no other is let in.
        gated.let_in.add_permits(1);
        let said = renewal.join().unwrap();
        assert!(said.json["answers"][0].get("ok").is_some(), "the quiet one lost its lease: {said:?}");
        drop(open);
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
