//! Keys that were free for long: their records go, their tokens do not come back.

use super::prelude::*;

/// Lets a free key grow old enough, and a little older: sweeps may be lazy.
pub(super) fn until_collected(g: &Fixture, name: &str) {
    g.pass(COLLECT_AFTER_FREE_MS);
    g.pass(1_000);
    until("a collected key", || g.view(name).is_none());
}

/// R36: the next token of a collected key is larger than its last.
pub(super) fn a_collected_key_goes_on_above_its_last_token(g: &Fixture) {
    g.churn("k", 20);
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    until_collected(g, "k");
    let b = g.take("k", "B");
    assert!(b.token > a.token, "{} after {}", b.token, a.token);
}

/// R36: the floor is the namespace's; another namespace has its own.
pub(super) fn a_floor_holds_for_every_key_of_its_namespace(g: &Fixture) {
    g.churn("k", 20);
    let last = g.view("k").expect("a key that was held").token;
    until_collected(g, "k");
    assert!(g.take("never-held", "A").token > last, "it could have been collected before");
}

/// R36: the smaller of two collected keys does not lower the floor.
pub(super) fn a_floor_never_sinks(g: &Fixture) {
    g.churn("busy", 20);
    let last = g.view("busy").expect("a key that was held").token;
    let quiet = g.take("quiet", "A");
    until_collected(g, "busy");
    // The quiet one was held until a moment ago, and is collected later.
    assert!(g.renew(&quiet).is_err());
    until_collected(g, "quiet");
    assert!(g.take("busy", "B").token > last);
}

/// R36, P2: what was shown of a collected key is no alarm.
pub(super) fn a_token_of_a_collected_key_is_no_alarm(g: &Fixture) {
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    until_collected(g, "k");
    assert!(g.renew(&a).is_err(), "over is over");
    assert_eq!(g.view("k"), None);
    g.take_with(AcquireLeaseRequest { seen_token: Some(a.token), ..g.ask("k", "B") });
}

/// R13: no hold id that ended on a key can come back after the key was collected: it would be too old by then.
pub(super) fn a_key_is_kept_while_a_hold_id_could_come_back(g: &Fixture) {
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    g.pass(HOLD_AGE_MS_MAX);
    g.status();
    // A moment less than it is: the way to the store may take as long.
    let again = AcquireLeaseRequest { hold_id_age_ms: HOLD_AGE_MS_MAX - 1_000, ..a.request.clone() };
    assert_ended(g.try_with(again), &a, LeaseOutcome::Released);
    assert!(g.view("k").is_some());
}

/// A key that is held is never collected, however long it is held.
pub(super) fn a_held_key_is_never_collected(g: &Fixture) {
    let ttl_ms = COLLECT_AFTER_FREE_MS / 2;
    let earlier = g.take("k", "A");
    g.release(&earlier).expect("a live lease");
    let a = g.take_with(AcquireLeaseRequest { ttl_ms, ..g.ask("k", "A") });
    for _ in 0..5 {
        g.pass(ttl_ms - 1_000);
        g.status();
        g.renew(&a).expect("a live lease");
    }
    let view = g.view("k").expect("a held key");
    assert_eq!((view.token, view.endings.len()), (a.token, 1), "nor has it forgotten anything");
}
