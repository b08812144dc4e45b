//! Renewal is only renewal: it keeps token and ttl, revives nothing, and says at once which it was.

use super::prelude::*;

/// P3.
pub(super) fn a_renewal_keeps_token_and_ttl(g: &Fixture) {
    let a = g.take("k", "A");
    for _ in 0..4 {
        g.pass_if_it_can(g.ttl_ms() * 2 / 3);
        let renewal = g.renew(&a).expect("a live lease");
        assert_eq!((renewal.token, renewal.remaining_ms), (a.token, g.ttl_ms()));
        assert_eq!(renewal.yield_request, None);
    }
    let view = g.view("k").expect("a held key");
    assert_eq!(view.token, a.token);
    assert_eq!(view.holder.map(|holder| holder.ttl_ms), Some(g.ttl_ms()));
    assert_held_by(g.try_take("k", "B"), &a);
}

/// Many holds in one call, one answer for each, in the order in which they were named.
pub(super) fn many_renewals_are_answered_each_and_in_order(g: &Fixture) {
    let superseded = g.take_and_run_out("superseded", "A");
    let newer = g.take("superseded", "B");
    let live = g.take("live", "A");
    let released = g.take("released", "A");
    let revoked = g.take("revoked", "A");
    g.release(&released).expect("a live lease");
    g.revoke_key("revoked");
    let foreign = HeldLease { token: newer.token, ..superseded.clone() };

    let mut answers = g
        .renew_many(&[&released, &live, &revoked, &foreign, &superseded, &live])
        .into_iter();
    let mut next = || answers.next().expect("an answer for each");
    assert_lost(next(), &released, LeaseOutcome::Released);
    assert_eq!(next().map(|renewal| renewal.token), Ok(live.token));
    assert_lost(next(), &revoked, LeaseOutcome::Revoked);
    assert_eq!(next(), Err(Refusal::WrongHoldId { token: newer.token }));
    assert_lost(next(), &superseded, LeaseOutcome::Expired);
    assert_eq!(next().map(|renewal| renewal.token), Ok(live.token));
    assert!(answers.next().is_none(), "and no more");
    assert_eq!(g.renew_many(&[]), []);
}

/// R12: a heartbeat that arrives after its holder's own release.
pub(super) fn a_renewal_never_revives_a_released_lease(g: &Fixture) {
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    assert_lost(g.renew(&a), &a, LeaseOutcome::Released);
    assert_eq!(g.holder("k"), None);
    let b = g.take("k", "B");
    assert_lost(g.renew(&a), &a, LeaseOutcome::Released);
    assert_held_by(g.try_take("k", "C"), &b);
}

/// P3: too late is too late, although no one has taken the key yet.
pub(super) fn a_renewal_never_revives_an_expired_lease(g: &Fixture) {
    let a = g.take_and_run_out("k", "A");
    assert_lost(g.renew(&a), &a, LeaseOutcome::Expired);
    assert_eq!(g.holder("k"), None);
    assert_eq!(g.ending_of(&a).map(|ending| ending.outcome), Some(LeaseOutcome::Expired));
    assert_lost(g.renew(&a), &a, LeaseOutcome::Expired);
}

/// R04, R11: a renewal that was under way when an operator revoked lands after it.
pub(super) fn a_renewal_never_revives_a_revoked_lease(g: &Fixture) {
    let a = g.take("k", "A");
    g.renew(&a).expect("a live lease");
    let revoked = g.revoke_key("k").revoked;
    assert_lost(g.renew(&a), &a, LeaseOutcome::Revoked);
    assert_eq!(g.holder("k"), None);
    // Fences learn the new token.
    assert_matches!(g.renew(&a), Err(Refusal::Lost { current_token, .. }) if current_token >= revoked.consumed_token);
}

/// R08: the delayed renewal of a former holder takes nothing back.
pub(super) fn a_late_renewal_steals_nothing_back(g: &Fixture) {
    let a = g.take_and_run_out("k", "A");
    let b = g.take("k", "B");
    assert_superseded(g.renew(&a), &a, &b);
    assert_eq!(g.holder_name("k").as_deref(), Some("B"));
    g.renew(&b).expect("untouched");
}

/// P5: token and hold id must both be the holder's.
pub(super) fn a_renewal_needs_the_holders_own_id_and_token(g: &Fixture) {
    let earlier = g.take("k", "A");
    g.release(&earlier).expect("a live lease");
    let a = g.take("k", "A");
    let other = g.take("other", "B");
    let right_token_wrong_id = HeldLease { request: other.request.clone(), ..a.clone() };
    assert_eq!(g.renew(&right_token_wrong_id), Err(Refusal::WrongHoldId { token: a.token }));
    let right_id_older_token = HeldLease { token: earlier.token, ..a.clone() };
    let refused = g.renew(&right_id_older_token);
    let tokens =
        assert_matches!(refused, Err(Refusal::Lost { token, current_token, .. }) => (token, current_token));
    assert_eq!(tokens, (earlier.token, a.token));
    g.renew(&a).expect("the holder itself");
}

/// R03: the sweep picked a lease; its holder renewed in time; the sweep acts.
pub(super) fn a_sweep_never_ends_a_lease_that_was_renewed_in_time(g: &Fixture) {
    let a = g.take("k", "A");
    let slack_ms = if g.has(TestCapability::StandsStill) { 1 } else { g.ttl_ms() / 3 };
    for _ in 0..3 {
        g.pass(g.ttl_ms() - slack_ms);
        g.renew(&a).expect("in time");
        // Past the deadline that the sweep knew of.
        g.pass(slack_ms);
        g.status();
        assert_held_by(g.try_take("k", "B"), &a);
        g.renew(&a).expect("a lease that lives on");
    }
}

/// R05: an old note that a key is due does nothing to the lease that came after.
pub(super) fn a_stale_sweep_leaves_the_next_holder_alone(g: &Fixture) {
    let long = |owner: &str| AcquireLeaseRequest { ttl_ms: g.ttl_ms() * 3, ..g.ask("k", owner) };
    let a = g.take("k", "A");
    g.pass(g.ttl_ms() / 2);
    g.release(&a).expect("a live lease");
    let b = g.take_with(long("B"));
    // A's deadline comes while B holds; then B's first deadline, which it has moved by then.
    for _ in 0..4 {
        g.pass(g.ttl_ms());
        g.status();
        assert_held_by(g.try_take("k", "C"), &b);
        g.renew(&b).expect("untouched");
    }
    assert_eq!(g.view("k").expect("a held key").endings.len(), 1, "only A's hold has ended");
}

/// A holder that acts too late is refused, and that is on record.
pub(super) fn a_stale_renewal_is_recorded(g: &Fixture) {
    let a = g.take_and_run_out("k", "A");
    let b = g.take("k", "B");
    assert!(g.renew(&a).is_err());
    let blocked = g.facts("k").into_iter().find_map(|fact| match fact {
        EventData::StaleWriteBlocked { token: stale_token, current_token, outcome: how, .. } => {
            Some((stale_token, current_token, how))
        }
        _ => None,
    });
    assert_eq!(blocked, Some((a.token, b.token, Some(LeaseOutcome::Expired))));
}
