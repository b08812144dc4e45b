//! The line: first come, first served; no one passes it; no waiter is granted anything after its time.

use super::prelude::*;

/// A key that is given back goes to one who waits, at once and without being asked again.
pub(super) fn a_released_key_goes_to_one_who_waits(g: &Fixture) {
    let a = g.take("k", "A");
    let waiting = g.stand_in_line(g.ask_to_wait("k", "B"));
    assert_held_by(g.try_take("k", "C"), &a);
    g.release(&a).expect("a live lease");
    let b = waiting.answer().expect("a key that came free");
    assert!(b.token > a.token);
    assert_eq!((b.remaining_ms, b.resumed), (g.ttl_ms(), false));
    assert_eq!(g.holder_name("k").as_deref(), Some("B"));
    assert_eq!(g.waiters("k"), 0);
}

/// P4: so does one whose holder has died, within a second of its deadline, without a request.
pub(super) fn a_key_that_runs_out_goes_to_one_who_waits(g: &Fixture) {
    let a = g.take("k", "A");
    let waiting = g.stand_in_line(g.ask_to_wait("k", "B"));
    g.pass(g.ttl_ms());
    g.pass(1_000);
    let b = waiting.answer().expect("a key that came free");
    assert!(b.token > a.token);
    assert_eq!(g.ending_of(&a).map(|ending| ending.outcome), Some(LeaseOutcome::Expired));
}

/// First come, first served.
pub(super) fn those_in_line_are_served_in_order(g: &Fixture) {
    let mut holder = g.take("k", "A");
    let names: Vec<String> = (0..3 * HISTORY_MAX).map(|nth| format!("waiter-{nth}")).collect();
    // Behind so many that the key's history has long forgotten what ended before them.
    let waiting: Vec<_> = names.iter().map(|name| g.stand_in_line(g.ask_to_wait("k", name))).collect();
    assert_eq!(g.waiters("k"), names.len() as u64);
    for (name, waiting) in names.iter().zip(waiting) {
        g.pass_if_it_can(10);
        g.release(&holder).expect("a live lease");
        let next = waiting.answer().unwrap_or_else(|refusal| panic!("{name}: {refusal}"));
        assert_eq!(g.holder_name("k").as_ref(), Some(name));
        assert!(next.token > holder.token);
        holder = next;
    }
}

/// The answer says how long the request stood in line, so that its holder can count from before it asked.
pub(super) fn a_grant_says_how_long_the_request_stood_in_line(g: &Fixture) {
    let a = g.take("k", "A");
    let waiting = g.start_raw(g.ask_to_wait("k", "B"));
    until("standing in line", || g.waiters("k") == 1);
    g.pass(g.ttl_ms() / 2);
    g.release(&a).expect("a live lease");
    let acquired = waiting.answer().expect("a key that came free");
    // Not less; and hardly more, though the way to the store may take a moment of real time.
    let stood_ms = g.ttl_ms() / 2;
    let waited_ms = acquired.waited_ms;
    assert!((stood_ms..stood_ms + g.ttl_ms() / 3).contains(&waited_ms), "{waited_ms} ms, not {stood_ms} ms");
    assert_eq!(acquired.grant.remaining_ms, g.ttl_ms(), "a full ttl from the grant");
}

/// `try` never passes those in line: the key of a dead holder is theirs.
pub(super) fn a_try_never_passes_those_in_line(g: &Fixture) {
    let a = g.take("k", "A");
    let waiting = g.stand_in_line(g.ask_to_wait("k", "B"));
    g.run_out("k");
    // No matter what notices first, the try or the store itself: the line goes first.
    let tried = g.try_take("k", "C");
    let b = waiting.answer().expect("a key that came free");
    assert!(b.token > a.token);
    assert_held_by(tried, &b);
}

/// R19: one whose own time is up is not granted what comes free afterwards.
pub(super) fn a_waiter_whose_time_is_up_is_never_granted(g: &Fixture) {
    let a = g.take("k", "A");
    let wait_ms = g.ttl_ms() / 3;
    let short = g.stand_in_line(AcquireLeaseRequest { wait_ms, ..g.ask("k", "B") });
    let patient = g.stand_in_line(g.ask_to_wait("k", "C"));
    g.pass(wait_ms);
    g.release(&a).expect("a live lease");
    let c = patient.answer().expect("a key that came free");
    assert_matches!(short.answer(), Err(Refusal::Held { .. }), "its time was up");
    assert!(c.token > a.token);
    assert_eq!(g.holder_name("k").as_deref(), Some("C"));
}

/// R19: to the millisecond: granted one before its time is up, refused when it is.
pub(super) fn a_waiter_is_granted_until_its_time_is_up_and_not_at_it(g: &Fixture) {
    let wait_ms = g.ttl_ms() / 2;
    for (early_ms, granted) in [(1, true), (0, false)] {
        let name = format!("k{early_ms}");
        let a = g.take(&name, "A");
        let waiting = g.stand_in_line(AcquireLeaseRequest { wait_ms, ..g.ask(&name, "B") });
        g.pass(wait_ms - early_ms);
        g.release(&a).expect("a live lease");
        assert_eq!(waiting.answer().is_ok(), granted, "{early_ms} ms before its time is up");
        assert_eq!(g.holder(&name).is_some(), granted);
    }
}

/// R19: at the moment at which both the lease and the waiter's time are over, the waiter goes home.
pub(super) fn a_waiter_whose_time_ends_with_the_lease_is_refused(g: &Fixture) {
    g.take("k", "A");
    let waiting = g.stand_in_line(AcquireLeaseRequest { wait_ms: g.ttl_ms(), ..g.ask("k", "B") });
    g.pass(g.ttl_ms() + 1_000);
    assert!(waiting.answer().is_err());
    assert_eq!(g.holder("k"), None);
}

/// A waiter must stay to keep its place: one that goes leaves the line.
pub(super) fn one_that_leaves_the_line_is_passed_over(g: &Fixture) {
    let a = g.take("k", "A");
    let gone = g.stand_in_line(g.ask_to_wait("k", "B"));
    let stays = g.stand_in_line(g.ask_to_wait("k", "C"));
    assert!(gone.leave().is_none());
    until("a shorter line", || g.waiters("k") == 1);
    g.release(&a).expect("a live lease");
    stays.answer().expect("a key that came free");
    assert_eq!(g.holder_name("k").as_deref(), Some("C"));
    assert_eq!(g.view("k").expect("a held key").endings.len(), 1, "no one was granted it in between");
}

/// R14: the grant commits, and the one who waited for it is not there any more.
pub(super) fn a_grant_that_nobody_picks_up_is_freed_at_once(g: &Fixture) {
    let a = g.take("k", "A");
    let waiting = g.stand_in_line(g.ask_to_wait("k", "B"));
    waiting.freeze();
    g.release(&a).expect("a live lease");
    until("the late grant", || g.holder_name("k").as_deref() == Some("B"));
    assert!(waiting.leave().is_none(), "it never saw its grant");
    until("a key that is free again", || g.holder("k").is_none());
    let endings = g.view("k").expect("a key that was held").endings;
    let late = endings.last().expect("how the late grant ended");
    assert_eq!(late.owner.as_str(), "B", "and visible as such");
    assert!(matches!(late.outcome, LeaseOutcome::Abandoned | LeaseOutcome::Released), "{}", late.outcome);
    let c = g.take("k", "C");
    assert!(c.token > late.token);
}

/// R14, R13: the hold id of a grant whose caller had gone has had its lease.
pub(super) fn the_hold_id_of_a_grant_that_nobody_picked_up_has_ended(g: &Fixture) {
    let a = g.take("k", "A");
    let request = g.ask_to_wait("k", "B");
    let waiting = g.stand_in_line(request.clone());
    waiting.freeze();
    g.release(&a).expect("a live lease");
    until("the late grant", || g.holder_name("k").as_deref() == Some("B"));
    drop(waiting);
    until("a key that is free again", || g.holder("k").is_none());
    let again = g.try_with(AcquireLeaseRequest { hold_id_age_ms: 1, wait_ms: 0, ..request });
    assert_matches!(again, Err(Refusal::HoldIdUsed { .. }));
}

/// P7: the same request again, while the first still stands in line, takes its place.
pub(super) fn the_same_request_again_keeps_its_place_in_line(g: &Fixture) {
    let a = g.take("k", "A");
    let request = g.ask_to_wait("k", "B");
    let first = g.start_raw(request.clone());
    until("standing in line", || g.waiters("k") == 1);
    g.pass(10);
    let behind = g.stand_in_line(g.ask_to_wait("k", "C"));
    g.pass(10);
    let again = g.start(AcquireLeaseRequest { hold_id_age_ms: 20, ..request });
    assert_matches!(first.answer(), Err(StoreError::Unavailable { .. }), "the earlier sending got");
    assert_eq!(g.waiters("k"), 2, "it stands in line once");
    g.release(&a).expect("a live lease");
    let b = again.answer().expect("a key that came free");
    assert_eq!(g.holder_name("k").as_deref(), Some("B"));
    g.release(&b).expect("a live lease");
    behind.answer().expect("the next in line");
}

/// P7, R13: nor is one that asks again taken for one that has ended, however many were served meanwhile.
pub(super) fn one_that_asks_again_in_a_long_line_is_served(g: &Fixture) {
    let mut holder = g.take("k", "A");
    let ahead: Vec<_> = (0..2 * HISTORY_MAX).map(|_| g.stand_in_line(g.ask_to_wait("k", "B"))).collect();
    let request = g.ask_to_wait("k", "C");
    let first = g.start_raw(request.clone());
    until("standing in line", || g.waiters("k") == ahead.len() as u64 + 1);
    let mut again = None;
    for (served, waiting) in ahead.into_iter().enumerate() {
        g.pass(10);
        g.release(&holder).expect("a live lease");
        holder = waiting.answer().expect("a key that came free");
        if served == HISTORY_MAX + 3 {
            let age_ms = 10 * (served as u64 + 1);
            again = Some(g.start(AcquireLeaseRequest { hold_id_age_ms: age_ms, ..request.clone() }));
            until("the later sending in line", || {
                g.status();
                first.answered().is_some()
            });
        }
    }
    g.release(&holder).expect("a live lease");
    let c = again.expect("the later sending").answer().expect("the last in line");
    assert_eq!(c.request.owner.as_str(), "C");
}

/// One that stood in line at a server that has gone takes that time along.
pub(super) fn time_stood_in_line_elsewhere_counts(g: &Fixture) {
    let a = g.take("k", "A");
    let newcomer = g.stand_in_line(g.ask_to_wait("k", "B"));
    let veteran = g.stand_in_line(AcquireLeaseRequest { waited_before_ms: 5_000, ..g.ask_to_wait("k", "C") });
    g.release(&a).expect("a live lease");
    let c = veteran.answer().expect("a key that came free");
    assert_eq!(g.holder_name("k").as_deref(), Some("C"));
    g.release(&c).expect("a live lease");
    newcomer.answer().expect("the next in line");
}

/// A claim to have stood in line for ever is no harm to the store.
pub(super) fn an_absurd_time_in_line_is_harmless(g: &Fixture) {
    let a = g.take("k", "A");
    let request = AcquireLeaseRequest { waited_before_ms: u64::MAX, ..g.ask_to_wait("k", "B") };
    let first = g.start_raw(request.clone());
    until("standing in line", || g.waiters("k") == 1);
    g.pass_if_it_can(10);
    let again = g.start(AcquireLeaseRequest { hold_id_age_ms: 10, ..request });
    assert!(first.answer().is_err());
    g.release(&a).expect("a live lease");
    again.answer().expect("a key that came free");
}

/// Higher rank stands further ahead; within one rank the order of arrival counts.
pub(super) fn higher_priority_stands_further_ahead(g: &Fixture) {
    let mut holder = g.take("k", "A");
    let ranks = [("low", -5), ("first", 0), ("high", 9), ("second", 0)];
    let waiting = ranks.map(|(name, priority)| {
        (name, g.stand_in_line(AcquireLeaseRequest { priority, ..g.ask_to_wait("k", name) }))
    });
    let mut waiting: Vec<_> = waiting.into_iter().collect();
    for expected in ["high", "first", "second", "low"] {
        g.release(&holder).expect("a live lease");
        let at = waiting.iter().position(|(name, _)| *name == expected).expect("a waiter");
        holder = waiting.remove(at).1.answer().expect("a key that came free");
        assert_eq!(g.holder_name("k").as_deref(), Some(expected));
    }
}

/// R13: a waiter that asks again after it was granted learns of the lease that it has.
pub(super) fn a_waiter_that_asks_again_after_its_grant_has_its_lease(g: &Fixture) {
    let a = g.take("k", "A");
    let request = g.ask_to_wait("k", "B");
    let waiting = g.stand_in_line(request.clone());
    g.release(&a).expect("a live lease");
    let b = waiting.answer().expect("a key that came free");
    let again = g.take_with(AcquireLeaseRequest { hold_id_age_ms: 1, ..request });
    assert_eq!((again.token, again.resumed), (b.token, true));
    g.release(&b).expect("a live lease");
    assert_ended(
        g.try_with(AcquireLeaseRequest { hold_id_age_ms: 1, ..b.request.clone() }),
        &b,
        LeaseOutcome::Released,
    );
}

/// A waiter for several keys leaves all the lines with its first grant.
pub(super) fn a_waiter_for_several_keys_leaves_every_line_with_its_grant(g: &Fixture) {
    let (one, two) = (g.take("one", "A"), g.take("two", "A"));
    let any = AcquireLeaseRequest { any_of: keys(&["one", "two"]), ..g.ask_to_wait("one", "B") };
    let waiting = g.stand_in_line(any);
    g.release(&two).expect("a live lease");
    let b = waiting.answer().expect("a key that came free");
    assert_eq!(b.key.as_str(), "two");
    assert_eq!((g.waiters("one"), g.waiters("two")), (0, 0));
    g.release(&one).expect("a live lease");
    assert_eq!(g.holder("one"), None, "it was granted one key, not two");
}
