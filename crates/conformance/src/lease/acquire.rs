//! Taking a key: one holder, tokens that only grow, a lease that is live until its deadline and not longer.

use super::prelude::*;

/// P1.
pub(super) fn a_key_has_one_holder(g: &Fixture) {
    let a = g.take("k", "A");
    assert_held_by(g.try_take("k", "B"), &a);
    assert_held_by(g.try_take("k", "A"), &a);
    assert_eq!(g.holder_name("k").as_deref(), Some("A"));
    g.take("another", "B");
}

/// P4: the answer carries all that the holder's own deadline is made of.
pub(super) fn a_grant_says_how_long_it_lasts(g: &Fixture) {
    let request = g.ask("k", "A");
    let acquired = g.acquire(request).expect("a free key");
    assert_eq!(acquired.key, key("k"));
    let waited_ms = acquired.waited_ms;
    assert!(waited_ms < g.ttl_ms() / 3, "nothing was in the way, but it waited {waited_ms} ms");
    assert!(!acquired.grant.resumed);
    assert_eq!(acquired.grant.remaining_ms, g.ttl_ms());
    assert!(acquired.grant.token.get() >= 1);
}

/// Who asks in vain learns whom to ask, and for how long.
pub(super) fn a_refusal_names_holder_task_time_and_token(g: &Fixture) {
    let a = g.take_with(AcquireLeaseRequest { task: Some(task("run-42")), ..g.ask("k", "A") });
    match g.try_take("k", "B") {
        Err(Refusal::Held { owner, task: Some(serves), remaining_ms: expires_in_ms, token }) => {
            assert_eq!((owner.as_str(), serves.as_str(), token), ("A", "run-42", a.token));
            g.assert_ms("what the holder has left", expires_in_ms, g.ttl_ms());
        }
        other => panic!("not a refusal that names the holder: {:?}", other.map(|held| held.token)),
    }
}

/// What people see of a hold: everything but its proof.
pub(super) fn a_held_key_shows_its_holder(g: &Fixture) {
    assert_eq!(g.view("k"), None, "nothing is kept of a key that was never held");
    let request = AcquireLeaseRequest {
        task: Some(task("run-42")),
        max_age_ms: Some(g.ttl_ms() * 5),
        priority: 7,
        ..g.ask("k", "A")
    };
    let a = g.take_with(request);
    let view = g.view("k").expect("a key that is held");
    let holder = view.holder.expect("its holder");
    assert_eq!((view.key, view.token, view.waiter_count), (key("k"), a.token, 0));
    assert_eq!(view.endings, []);
    assert_eq!(holder.owner.as_str(), "A");
    assert_eq!(holder.task, Some(task("run-42")));
    assert_eq!((holder.ttl_ms, holder.max_age_ms, holder.priority), (g.ttl_ms(), Some(g.ttl_ms() * 5), 7));
    assert_eq!(holder.yield_request, None);
    g.assert_ms("what it has left", holder.remaining_ms, g.ttl_ms());
    if g.has(TestCapability::MovesTime) {
        g.pass(1_000);
        let holder = g.holder("k").expect("its holder");
        assert!(holder.age_ms >= 1_000, "it has been held for {} ms", holder.age_ms);
        g.assert_ms("what it has left later", holder.remaining_ms, g.ttl_ms() - 1_000);
    }
}

/// P2.
pub(super) fn tokens_grow_after_a_release(g: &Fixture) {
    let mut last = g.take("k", "A");
    for _ in 0..12 {
        g.release(&last).expect("a live lease");
        let next = g.take("k", "B");
        assert!(next.token > last.token, "{} after {}", next.token, last.token);
        last = next;
    }
}

/// P2.
pub(super) fn tokens_grow_after_an_expiry(g: &Fixture) {
    let mut last = g.take_and_run_out("k", "A");
    for _ in 0..3 {
        let next = g.take_and_run_out("k", "B");
        assert!(next.token > last.token, "{} after {}", next.token, last.token);
        last = next;
    }
}

/// P2, P9: no holder ever gets the token that a revocation consumed.
pub(super) fn tokens_grow_after_a_revocation_and_skip_what_it_consumed(g: &Fixture) {
    let a = g.take("k", "A");
    let revoked = g.revoke_key("k").revoked;
    assert_eq!(revoked.token, a.token);
    assert!(revoked.consumed_token > a.token);
    let b = g.take("k", "B");
    assert!(b.token > revoked.consumed_token, "{} after {} was consumed", b.token, revoked.consumed_token);
}

/// P4: live until one millisecond before the deadline, over at the deadline.
pub(super) fn a_lease_is_live_until_its_deadline_and_over_at_it(g: &Fixture) {
    let a = g.take("k", "A");
    g.pass(g.ttl_ms() - 1);
    assert_held_by(g.try_take("k", "B"), &a);
    assert_eq!(g.holder("k").map(|holder| holder.remaining_ms), Some(1));
    g.pass(1);
    assert_eq!(g.holder("k"), None, "over at its deadline, whether or not anybody has noticed");
    let b = g.take("k", "B");
    assert!(b.token > a.token);
    assert_lost(g.renew(&a), &a, LeaseOutcome::Expired);
}

/// P4: a renewal moves the deadline to one ttl after the renewal, to the millisecond.
pub(super) fn a_renewed_lease_is_live_until_its_new_deadline(g: &Fixture) {
    let a = g.take("k", "A");
    g.pass(g.ttl_ms() - 1);
    g.renew(&a).expect("a live lease");
    g.pass(g.ttl_ms() - 1);
    assert_held_by(g.try_take("k", "B"), &a);
    g.pass(1);
    g.take("k", "B");
}

/// P10: a holder that dies leaves nothing to clean but a line of history.
pub(super) fn a_dead_holder_leaves_only_history(g: &Fixture) {
    let a = g.take_and_run_out("k", "A");
    assert_eq!(g.holder("k"), None);
    let b = g.take("k", "B");
    let ending = g.ending_of(&a).expect("how it ended");
    assert_eq!((ending.owner.as_str(), ending.outcome), ("A", LeaseOutcome::Expired));
    assert_eq!((ending.by, ending.reason), (None, None), "no one ended it");
    assert_eq!(g.holder_name("k").as_deref(), Some("B"));
    g.release(&b).expect("a live lease");
}

/// A hold is over at its `max_age`, however often it is renewed, and says so.
pub(super) fn a_hold_is_over_at_its_max_age_however_often_it_is_renewed(g: &Fixture) {
    let (ttl_ms, half_ms) = (g.ttl_ms(), g.ttl_ms() / 2);
    let a = g.take_with(AcquireLeaseRequest { max_age_ms: Some(2 * ttl_ms), ..g.ask("k", "A") });
    for (passed, left) in [(1, ttl_ms), (2, ttl_ms), (3, half_ms)] {
        g.pass(half_ms);
        let renewal = g.renew(&a).expect("a lease within its age");
        assert_eq!(renewal.remaining_ms, left, "after {passed} halves of a ttl");
    }
    g.pass(half_ms - 1);
    assert_held_by(g.try_take("k", "B"), &a);
    assert_eq!(g.renew(&a).map(|renewal| renewal.remaining_ms), Ok(1));
    g.pass(1);
    assert_lost(g.renew(&a), &a, LeaseOutcome::AgedOut);
    let b = g.take("k", "B");
    assert!(b.token > a.token);
    assert_eq!(g.ending_of(&a).map(|ending| ending.outcome), Some(LeaseOutcome::AgedOut));
}

/// A `max_age` below the ttl shortens the first grant already.
pub(super) fn a_max_age_below_the_ttl_counts_from_the_grant(g: &Fixture) {
    let age_ms = g.ttl_ms() / 3;
    let a = g.take_with(AcquireLeaseRequest { max_age_ms: Some(age_ms), ..g.ask("k", "A") });
    assert_eq!(a.remaining_ms, age_ms);
    if g.has(TestCapability::MovesTime) {
        g.pass(age_ms);
        assert_lost(g.renew(&a), &a, LeaseOutcome::AgedOut);
    }
}

/// R32: the ttl that was recorded counts, whatever a contender has configured.
pub(super) fn the_recorded_ttl_counts_not_a_contenders(g: &Fixture) {
    let long_ms = g.ttl_ms();
    let short_ms = long_ms / 10;
    let a = g.take("k", "A");
    let brief = |owner: &str| AcquireLeaseRequest { ttl_ms: short_ms, ..g.ask("k", owner) };
    assert_held_by(g.try_with(brief("B")), &a);
    g.pass(2 * short_ms);
    assert_held_by(g.try_with(brief("B")), &a);
    g.pass(long_ms / 3);
    assert_held_by(g.try_with(brief("B")), &a);
    // The other way round: one who would hold for longer lengthens nothing.
    g.release(&a).expect("a live lease");
    let b = g.take_with(brief("B"));
    assert_eq!(b.remaining_ms, short_ms);
    let patient = AcquireLeaseRequest { ttl_ms: long_ms * 4, ..g.ask("k", "C") };
    assert_held_by(g.try_with(patient), &b);
    g.pass(short_ms);
    g.take("k", "C");
    assert_lost(g.renew(&b), &b, LeaseOutcome::Expired);
}

/// R10: a worker that restarts under its old name adopts nothing.
pub(super) fn a_reused_owner_name_adopts_nothing(g: &Fixture) {
    let dead = g.take("k", "worker-1");
    assert_held_by(g.try_take("k", "worker-1"), &dead);
    // It knows the key, its own name and even the token; it does not know the hold id.
    let mut impostor = dead.clone();
    impostor.request = g.ask("k", "worker-1");
    assert_eq!(g.renew(&impostor), Err(Refusal::WrongHoldId { token: dead.token }));
    assert_eq!(g.release(&impostor), Err(Refusal::WrongHoldId { token: dead.token }));
    g.run_out("k");
    let reborn = g.take("k", "worker-1");
    assert!(reborn.token > dead.token);
    assert_lost(g.renew(&dead), &dead, LeaseOutcome::Expired);
    assert_lost(g.release(&dead), &dead, LeaseOutcome::Expired);
    assert_eq!(g.holder_name("k").as_deref(), Some("worker-1"));
    g.renew(&reborn).expect("its own lease");
}
