//! R30: everybody comes back at once. No tenant starves, renewals pass before anything else, and thousands who wait take
//! nothing from those who do not.

use std::net::TcpStream;

use fencehold_contract::clock::ManualClock;
use fencehold_server::ServerOptions;
use fencehold_server::limit::ServerLimits;
use serde_json::{Value, json};

use super::fixture::{SecurityFixture, acquire, eventually, hear, held, hold, send, send_text, waits};
use super::gated_store::{GatedStore, HeldCall};

/// Opens the gate, also when the test fails in the middle of it.
struct OpenOnDrop<'a>(&'a GatedStore);

impl Drop for OpenOnDrop<'_> {
    fn drop(&mut self) {
        self.0.let_in.add_permits(STORM);
    }
}

/// How many renewals of how many leases each the loud tenant comes back with: more than twice what there is room for.
const STORM: usize = 20;
const LEASES_EACH: usize = 2_000;

const ORDINARY_USED: &str = "fencehold_limit_used{limit=\"concurrent_requests\"}";
const ORDINARY_SHED: &str = "fencehold_limit_refused_total{limit=\"concurrent_requests\"}";
const RENEWALS_USED: &str = "fencehold_limit_used{limit=\"concurrent_renewals\"}";
const RENEWALS_SHED: &str = "fencehold_limit_refused_total{limit=\"concurrent_renewals\"}";
const RENEWALS_WAITING: &str = "fencehold_requests_queued{class=\"renewal\"}";

#[test]
fn a_quiet_tenant_passes_the_storm_of_a_loud_one() {
    let clock = ManualClock::new();
    let gated = GatedStore::new(&clock, "loud", HeldCall::Renewals);
    let fixture = SecurityFixture::over(ServerOptions::default(), gated.clone(), clock);
    let (loud, quiet, operator) = (fixture.admin("loud"), fixture.admin("quiet"), fixture.operator());
    let fence = fixture.acquire(&quiet, "mine", 1, 5_000);
    let holds: Vec<Value> = (0..LEASES_EACH).map(|nth| held(&format!("k/{nth}"), 2, 1)).collect();
    let storm = json!({ "holds": holds });
    std::thread::scope(|scope| {
        let open = OpenOnDrop(&gated);
        for _ in 0..STORM {
            scope.spawn(|| {
                let said = fixture.post(&loud, "/v1/leases/renew-batch", storm.clone());
                assert!([200, 503].contains(&said.status), "{}", said.status);
            });
        }
        let at_work = ServerLimits::default().fair_queue_permits / LEASES_EACH as u64;
        let in_line = STORM as f64 - at_work as f64;
        eventually("the lane is full and the rest of the storm waits", || {
            fixture.shows(&operator, RENEWALS_USED, (at_work * LEASES_EACH as u64) as f64)
                && fixture.shows(&operator, RENEWALS_WAITING, in_line)
        });
        let renewal = scope.spawn(|| fixture.renews(&quiet, "mine", 1, fence));
        eventually("the quiet one stands behind them", || {
            fixture.shows(&operator, RENEWALS_WAITING, in_line + 1.0)
        });
        // Room for one. Were it given to the storm, the quiet one would wait for ever: no other is let in.
        gated.let_in.add_permits(1);
        renewal.join().expect("the quiet one keeps its lease");
        drop(open);
    });
}

#[test]
fn renewals_pass_while_the_ordinary_lane_is_full() {
    let mut options = ServerOptions::default();
    options.limits.fair_queue_permits = 1;
    options.limits.fair_queue_waiters = 0;
    let clock = ManualClock::new();
    let gated = GatedStore::new(&clock, "loud", HeldCall::Acquisitions);
    let fixture = SecurityFixture::over(options, gated.clone(), clock);
    let (loud, quiet, operator) = (fixture.admin("loud"), fixture.admin("quiet"), fixture.operator());
    let fence = fixture.acquire(&quiet, "mine", 1, 30_000);
    fixture.post(&quiet, "/v1/jobs/enqueue-batch", json!({ "jobs": [{ "kind": "k" }] }));
    let claim =
        json!({ "queues": [{ "queue": "default" }], "hold_id": hold(5), "owner": "o", "ttl_ms": 30_000 });
    let claimed = fixture.post(&quiet, "/v1/jobs/claim", claim);
    let job = &claimed.json["jobs"][0];
    let attempt = json!({ "job_id": job["id"], "hold_id": hold(5), "token": job["token"] });
    std::thread::scope(|scope| {
        let open = OpenOnDrop(&gated);
        let acquiring = scope.spawn(|| fixture.post(&loud, "/v1/leases/acquire", acquire("k", 2, 30_000)));
        eventually("the ordinary lane is full", || fixture.shows(&operator, ORDINARY_USED, 1.0));
        let said = fixture.post(&quiet, "/v1/leases/acquire", acquire("other", 3, 30_000));
        assert_eq!((said.status, said.kind()), (503, "unavailable"), "{said:?}");
        assert!(said.head.contains("retry-after"), "{said:?}");
        fixture.renews(&quiet, "mine", 1, fence);
        let said = fixture.post(&quiet, "/v1/jobs/renew-batch", json!({ "attempts": [attempt] }));
        assert!(said.json["results"][0].get("ok").is_some(), "{said:?}");
        assert!(fixture.shows(&operator, ORDINARY_SHED, 1.0) && fixture.shows(&operator, RENEWALS_SHED, 0.0));
        drop(open);
        assert_eq!(acquiring.join().unwrap().status, 200);
    });
}

/// There is room for one request in each lane and for no line, and little memory for bodies: those who wait would have all of
/// both, and no renewal would come through.
#[test]
fn those_who_wait_take_neither_room_nor_memory_from_those_who_do_not() {
    let fixture = SecurityFixture::limited(|limits| {
        (limits.fair_queue_permits, limits.fair_queue_waiters) = (1, 0);
        (limits.body_bytes, limits.total_body_bytes, limits.body_ms) = (64 << 10, 1 << 20, 2_000);
    });
    let (token, operator) = (fixture.admin("team"), fixture.operator());
    let fence = fixture.acquire(&token, "k", 1, 60_000);
    let status = fixture.ask(&token, "GET", "/v1/store/status", None);
    let last = status.json["newest_event_seq"].as_u64().unwrap();
    // All together they send almost as much as all small bodies may take up.
    let padding = " ".repeat(20 << 10);
    let mut claim = json!({ "queues": [{ "queue": "empty" }], "owner": "o", "ttl_ms": 30_000 });
    let waiting: Vec<TcpStream> = (2..22_u8)
        .map(|number| {
            let mut stream = fixture.connect();
            let (path, body) = match number % 4 {
                0 => (format!("/v1/events?cursor={last}&prefix=none/&wait_ms=60000"), None),
                1 => {
                    claim["hold_id"] = json!(hold(number));
                    ("/v1/jobs/claim".to_owned(), Some(waits(claim.clone())))
                }
                _ => ("/v1/leases/acquire".to_owned(), Some(waits(acquire("k", number, 60_000)))),
            };
            match body {
                None => send(&mut stream, &token.headers(), "GET", &path, None),
                Some(body) => {
                    send_text(&mut stream, &token.headers(), "POST", &path, &format!("{body}{padding}"));
                }
            }
            let so_far = f64::from(number) - 1.0;
            eventually("it waits", || fixture.shows(&operator, "fencehold_requests_waiting", so_far));
            stream
        })
        .collect();
    assert!(fixture.shows(&operator, ORDINARY_USED, 0.0) && fixture.shows(&operator, RENEWALS_USED, 0.0));
    let second = fixture.acquire(&token, "free", 99, 30_000);
    let renewal = json!({ "holds": [held("k", 1, fence), held("free", 99, second)] });
    let mut stream = fixture.connect();
    let long = format!("{renewal}{padding}{padding}");
    send_text(&mut stream, &token.headers(), "POST", "/v1/leases/renew-batch", &long);
    let renewed = hear(stream);
    assert!(renewed.json["results"][1].get("ok").is_some(), "{renewed:?}");
    let released =
        fixture.post(&token, "/v1/leases/release-batch", json!({ "holds": [held("k", 1, fence)] }));
    assert!(released.json["results"][0].get("ok").is_some(), "{released:?}");
    // And the first in line is served.
    let granted = hear(waiting.into_iter().next().unwrap());
    assert_eq!(granted.status, 200, "{granted:?}");
}
