//! The store's clock decides: the wall clock changes nothing, and many ends at once starve no one.

use std::collections::HashMap;

use super::prelude::*;

const HOUR_MS: i64 = 60 * 60 * 1000;
/// More than one sweep takes.
const MANY: usize = 3_000;
/// How many take them, side by side.
const HANDS: usize = 4;

/// R20: the wall clock jumps forward by an hour: all leases live on.
pub(super) fn a_wall_clock_set_forward_ends_no_lease(g: &Fixture) {
    let held: Vec<HeldLease> = (0..5).map(|nth| g.take(&format!("k/{nth}"), "A")).collect();
    let before_ms = g.holder("k/0").expect("a held key").remaining_ms;
    g.test_store.shift_wall(HOUR_MS);
    g.status();
    for (nth, held) in held.iter().enumerate() {
        assert_held_by(g.try_take(&format!("k/{nth}"), "B"), held);
    }
    g.assert_ms("what is left", g.holder("k/0").expect("a held key").remaining_ms, before_ms);
    for held in &held {
        assert_eq!(g.renew(held).map(|renewal| renewal.remaining_ms), Ok(g.ttl_ms()));
    }
}

/// R21: the wall clock jumps back by an hour: leases still end on time.
pub(super) fn a_wall_clock_set_back_makes_no_lease_immortal(g: &Fixture) {
    let a = g.take("k", "A");
    g.test_store.shift_wall(-HOUR_MS);
    assert_held_by(g.try_take("k", "B"), &a);
    if g.has(TestCapability::StandsStill) {
        g.pass(g.ttl_ms() - 1);
        assert_held_by(g.try_take("k", "B"), &a);
        g.pass(1);
    } else {
        g.pass(g.test_store.over_after_ms(g.ttl_ms()));
    }
    g.take("k", "B");
    assert_lost(g.renew(&a), &a, LeaseOutcome::Expired);
}

/// R20, R21: nor does it touch those in line.
pub(super) fn a_wall_clock_that_jumps_touches_nobody_in_line(g: &Fixture) {
    let a = g.take("k", "A");
    let waiting = g.stand_in_line(AcquireLeaseRequest { wait_ms: g.ttl_ms() / 2, ..g.ask("k", "B") });
    for by_ms in [HOUR_MS, -2 * HOUR_MS] {
        g.test_store.shift_wall(by_ms);
        g.status();
        assert_eq!(g.waiters("k"), 1);
    }
    g.release(&a).expect("a live lease");
    waiting.answer().expect("a key that came free");
}

/// R29: a great many leases end in one moment. Every one of them ends, each is reported once, and in between a renewal
/// is answered and a key can be had.
pub(super) fn a_mass_expiry_ends_all_and_starves_nobody(g: &Fixture) {
    let survivor = g.take_with(AcquireLeaseRequest { ttl_ms: g.ttl_ms() * 4, ..g.ask("survivor", "A") });
    let share = |nth: usize| (nth..MANY).step_by(HANDS).map(|nth| g.take(&format!("dying/{nth:04}"), "A"));
    let dying: Vec<HeldLease> = at_once(HANDS, |nth| share(nth).collect::<Vec<_>>()).concat();
    g.pass(g.ttl_ms());
    for nth in [0, MANY / 2, MANY - 1] {
        g.renew(&survivor).expect("answered while others end");
        assert!(g.take(dying[nth].key.as_str(), "B").token > dying[nth].token);
        assert_lost(g.renew(&dying[nth]), &dying[nth], LeaseOutcome::Expired);
    }
    // A sweep may take its time, but store time must not have to pass for it by more than a second.
    g.pass(1_000);
    until("the end of all that have run out", || g.status().held_count == 4);
    let tokens: HashMap<_, _> = dying.into_iter().map(|held| (held.key, held.token)).collect();
    let mut ended = 0;
    let mut request = ListLeasesRequest { include_free: true, limit: 1_000, ..ListLeasesRequest::default() };
    loop {
        let page = g.list(request.clone()).expect("a list");
        for view in page.leases {
            let token = tokens.get(&view.key);
            let expired =
                |ending: &EndingView| Some(&ending.token) == token && ending.outcome == LeaseOutcome::Expired;
            ended += usize::from(view.endings.iter().any(expired));
        }
        request.cursor = page.next_cursor;
        if request.cursor.is_none() {
            break;
        }
    }
    assert_eq!(ended, MANY);
    g.renew(&survivor).expect("still there");
}
