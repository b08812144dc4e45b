//! Giving a key back: at once, once, and only one's own.

use super::prelude::*;

/// A released key is free at once.
pub(super) fn a_released_key_is_free_at_once(g: &Fixture) {
    let a = g.take("k", "A");
    assert_eq!(g.release(&a), Ok(a.token));
    assert_eq!(g.holder("k"), None);
    assert_eq!(g.ending_of(&a).map(|ending| ending.outcome), Some(LeaseOutcome::Released));
    g.take("k", "B");
}

/// P7: the same release again gets the same answer, also when another holder has the key by then.
pub(super) fn the_same_release_gets_the_same_answer(g: &Fixture) {
    let a = g.take("k", "A");
    assert_eq!(g.release(&a), Ok(a.token));
    assert_eq!(g.release(&a), Ok(a.token));
    let b = g.take("k", "B");
    assert_eq!(g.release(&a), Ok(a.token));
    assert_held_by(g.try_take("k", "C"), &b);
    if g.has(TestCapability::TellsEvents) {
        let ended = |fact: &EventData| matches!(fact, EventData::LeaseEnded { .. });
        assert_eq!(g.facts("k").into_iter().filter(ended).count(), 1, "it ended once");
    }
}

/// R01: A's lease runs out, B takes the key, A releases.
pub(super) fn a_stale_release_leaves_the_newer_holder_untouched(g: &Fixture) {
    let a = g.take_and_run_out("k", "A");
    let b = g.take("k", "B");
    assert_superseded(g.release(&a), &a, &b);
    assert_held_by(g.try_take("k", "C"), &b);
    g.renew(&b).expect("untouched");
}

/// R01: nor does a release pass for one after the end, when no one has taken the key.
pub(super) fn a_release_after_the_end_says_how_it_ended(g: &Fixture) {
    let expired = g.take_and_run_out("expired", "A");
    assert_lost(g.release(&expired), &expired, LeaseOutcome::Expired);
    assert_eq!(g.ending_of(&expired).map(|ending| ending.outcome), Some(LeaseOutcome::Expired));
    let revoked = g.take("revoked", "A");
    g.revoke_key("revoked");
    assert_lost(g.release(&revoked), &revoked, LeaseOutcome::Revoked);
}

/// P5: who does not know the hold id cannot release.
pub(super) fn a_release_needs_the_holders_own_id(g: &Fixture) {
    let a = g.take("k", "A");
    let other = g.take("other", "B");
    let forged = HeldLease { request: other.request.clone(), ..a.clone() };
    assert_eq!(g.release(&forged), Err(Refusal::WrongHoldId { token: a.token }));
    assert_held_by(g.try_take("k", "C"), &a);
}

/// Many holds in one call, one answer for each, in the order in which they were named.
pub(super) fn many_releases_are_answered_each_and_in_order(g: &Fixture) {
    let stale = g.take_and_run_out("stale", "A");
    let newer = g.take("stale", "B");
    let first = g.take("first", "A");
    let second = g.take("second", "A");
    let refs = [&second, &stale, &first, &second].map(HeldLease::as_ref).to_vec();
    let mut answers = g.release_refs(refs).expect("releases that are answered").into_iter();
    let mut next = || answers.next().expect("an answer for each");
    let released = |held: &HeldLease| Ok(ReleasedLease { key: held.key.clone(), token: held.token });
    assert_eq!(next(), released(&second));
    assert_lost(next(), &stale, LeaseOutcome::Expired);
    assert_eq!(next(), released(&first));
    assert_eq!(next(), released(&second), "the same hold twice in one call");
    assert!(answers.next().is_none(), "and no more");
    assert_eq!((g.holder("first"), g.holder("second")), (None, None));
    assert_held_by(g.try_take("stale", "C"), &newer);
}
