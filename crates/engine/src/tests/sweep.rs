//! R29: a mass expiry is taken in small portions, and the timer is lazy without being late.

use fencehold_contract::ListEventsRequest;
use fencehold_contract::operation::StoreRequest;

use super::{TTL_MS, TestEngine, request};

const MANY: u64 = 1_000;

fn rig_with_many() -> TestEngine {
    let mut rig = TestEngine::new();
    for nth in 0..MANY {
        rig.take(request(&format!("k/{nth}"), nth));
    }
    rig
}

#[test]
fn a_sweep_ends_at_most_its_budget_and_says_whether_there_is_more() {
    let mut rig = rig_with_many();
    rig.pass(TTL_MS);
    let mut sweeps = 0;
    let mut held = MANY;
    while rig.sweep(100) {
        sweeps += 1;
        let left = rig.held();
        assert!(held - left <= 100, "one sweep ended {} leases", held - left);
        held = left;
    }
    assert_eq!(rig.held(), 0);
    assert!(sweeps >= 10, "{sweeps} sweeps for {MANY} leases");
}

#[test]
fn a_renewal_between_two_sweeps_is_answered() {
    let mut rig = rig_with_many();
    let mut lasting = request("lasting", MANY);
    lasting.ttl_ms = 10 * TTL_MS;
    let lasting = rig.take(lasting);
    rig.pass(TTL_MS);
    while rig.sweep(50) {
        assert_eq!(rig.renew(&lasting), Ok(lasting.token));
    }
    assert_eq!(rig.held(), 1);
}

#[test]
fn a_sweep_before_the_deadline_ends_nothing() {
    let mut rig = rig_with_many();
    rig.pass(TTL_MS - 1);
    assert!(!rig.sweep(usize::MAX));
    assert_eq!(rig.held(), MANY);
}

/// A timer that went off for a deadline that has moved on is set again, for the new one.
#[test]
fn a_renewed_lease_is_swept_at_its_new_deadline() {
    let mut rig = TestEngine::new();
    let held = rig.take(request("k", 1));
    rig.pass(TTL_MS / 2);
    rig.renew(&held).unwrap();
    rig.pass(TTL_MS / 2);
    assert!(!rig.sweep(10));
    assert_eq!(rig.held(), 1, "past its first deadline only");
    assert_eq!(rig.engine.next_due_ms(), Some(rig.now.store_ms + TTL_MS / 2));
    rig.pass(TTL_MS / 2);
    assert!(!rig.sweep(10));
    assert_eq!(rig.held(), 0);
}

/// P4: an engine that is asked nothing asks to be woken in time.
#[test]
fn the_engine_asks_to_be_woken_for_deadlines_waiters_and_watchers() {
    let mut rig = TestEngine::new();
    assert_eq!(rig.engine.next_due_ms(), None);
    rig.take(request("k", 1));
    assert_eq!(rig.engine.next_due_ms(), Some(rig.now.store_ms + TTL_MS));
    rig.in_line(2, 50);
    assert_eq!(rig.engine.next_due_ms(), Some(rig.now.store_ms + 50));
    let events = ListEventsRequest { cursor: Some(1), limit: 1, wait_ms: 20, ..ListEventsRequest::default() };
    rig.send(StoreRequest::Events(events));
    assert_eq!(rig.engine.next_due_ms(), Some(rig.now.store_ms + 20));
}
