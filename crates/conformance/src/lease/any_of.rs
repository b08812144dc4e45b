//! One of several keys: slots of a semaphore.

use super::prelude::*;

const SLOTS: [&str; 3] = ["slot/1", "slot/2", "slot/3"];

fn any(g: &Fixture, owner: &str) -> AcquireLeaseRequest {
    AcquireLeaseRequest { any_of: keys(&SLOTS), ..g.ask(SLOTS[0], owner) }
}

/// The first that is free, in the order in which they were named; N slots take N holders and no more.
pub(super) fn the_first_free_key_is_granted_and_n_slots_take_n_holders(g: &Fixture) {
    for slot in SLOTS {
        assert_eq!(g.take_with(any(g, "A")).key.as_str(), slot);
    }
    assert_matches!(g.try_with(any(g, "B")), Err(Refusal::Held { .. }));
}

/// Who gets none learns which one comes free first.
pub(super) fn a_refusal_names_the_key_that_comes_free_first(g: &Fixture) {
    g.take(SLOTS[0], "A");
    let soon = g.take_with(AcquireLeaseRequest { ttl_ms: g.ttl_ms() / 3, ..g.ask(SLOTS[1], "B") });
    g.take(SLOTS[2], "C");
    assert_held_by(g.try_with(any(g, "D")), &soon);
}

/// R13: it first looks for its own hold id among all keys, also when an earlier one is free by now.
pub(super) fn its_own_hold_is_found_on_any_key(g: &Fixture) {
    let first = g.take(SLOTS[0], "A");
    let request = any(g, "B");
    let b = g.take_with(request.clone());
    assert_eq!(b.key.as_str(), SLOTS[1]);
    g.release(&first).expect("a live lease");
    let again = g.take_with(AcquireLeaseRequest { hold_id_age_ms: 1, ..request });
    assert_eq!((again.key, again.token, again.resumed), (b.key, b.token, true));
    assert_eq!(g.holder(SLOTS[0]), None, "one acquisition holds one key");
}

/// R13: also when it has seen a token of the first key: that token says nothing about the others.
pub(super) fn a_token_seen_on_the_first_key_says_nothing_of_the_others(g: &Fixture) {
    g.churn(SLOTS[0], 5);
    let first = g.take(SLOTS[0], "A");
    let request = AcquireLeaseRequest { seen_token: Some(first.token), ..any(g, "B") };
    let b = g.take_with(request.clone());
    assert_eq!(b.key.as_str(), SLOTS[1]);
    assert!(b.token < first.token);
    let again = g.take_with(AcquireLeaseRequest { hold_id_age_ms: 1, ..request });
    assert_eq!((again.token, again.resumed), (b.token, true));
}

/// P2: a token seen on the first key is held against that key.
pub(super) fn a_token_never_given_on_the_first_key_is_an_alarm(g: &Fixture) {
    let shown = Token::new(99);
    let tried = g.try_with(AcquireLeaseRequest { seen_token: Some(shown), ..any(g, "A") });
    assert_matches!(tried, Err(Refusal::StoreRewound { token, .. }) if token == shown);
}

/// R13: a hold that ended on one of the keys is granted none of them.
pub(super) fn a_hold_that_ended_on_one_key_is_granted_no_other(g: &Fixture) {
    g.take(SLOTS[0], "A");
    let request = any(g, "B");
    let b = g.take_with(request.clone());
    assert_eq!(b.key.as_str(), SLOTS[1]);
    g.release(&b).expect("a live lease");
    assert_ended(
        g.try_with(AcquireLeaseRequest { hold_id_age_ms: 1, ..request }),
        &b,
        LeaseOutcome::Released,
    );
    assert_eq!((g.holder(SLOTS[1]), g.holder(SLOTS[2])), (None, None));
}

/// Waiting for any: the first that comes free, whichever it is, by release or by running out.
pub(super) fn the_first_key_that_comes_free_is_granted(g: &Fixture) {
    let held = SLOTS.map(|slot| g.take(slot, "A"));
    let waiting =
        |owner: &str| g.stand_in_line(AcquireLeaseRequest { wait_ms: g.ttl_ms() * 10, ..any(g, owner) });
    let first = waiting("B");
    g.release(&held[2]).expect("a live lease");
    assert_eq!(first.answer().expect("a key that came free").key.as_str(), SLOTS[2]);
    if g.has(TestCapability::MovesTime) {
        let second = waiting("C");
        g.renew(&held[0]).expect("a live lease");
        g.pass(g.ttl_ms() / 2);
        g.renew(&held[0]).expect("a live lease");
        g.pass(g.ttl_ms() - g.ttl_ms() / 2);
        g.pass(1_000);
        assert_ne!(second.answer().expect("a key that came free").key.as_str(), SLOTS[0]);
    }
}

/// Those who wait for any key and those who wait for one of them stand in the same line.
pub(super) fn waiters_for_one_and_for_any_stand_in_one_line(g: &Fixture) {
    let held = SLOTS.map(|slot| g.take(slot, "A"));
    let one = g.stand_in_line(g.ask_to_wait(SLOTS[1], "B"));
    let some = g.stand_in_line(AcquireLeaseRequest { wait_ms: g.ttl_ms() * 10, ..any(g, "C") });
    g.release(&held[1]).expect("a live lease");
    let b = one.answer().expect("the first in line for that key");
    assert_eq!(g.holder_name(SLOTS[1]).as_deref(), Some("B"));
    g.release(&b).expect("a live lease");
    assert_eq!(some.answer().expect("the next in line").key.as_str(), SLOTS[1]);
}
