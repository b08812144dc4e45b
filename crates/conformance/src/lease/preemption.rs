//! Being asked to yield: the holder learns at its next renewal for whom and by when, and gets only the remainder.

use super::prelude::*;

type PreemptCase = PendingCall<Result<HeldLease, Refusal>>;

fn contend(g: &Fixture, name: &str, priority: i16, yield_within_ms: u64) -> AcquireLeaseRequest {
    AcquireLeaseRequest { priority, preempt_within_ms: Some(yield_within_ms), ..g.ask_to_wait("k", name) }
}

fn in_line(g: &Fixture, name: &str, priority: i16, yield_within_ms: u64) -> PreemptCase {
    g.stand_in_line(contend(g, name, priority, yield_within_ms))
}

/// Whom the holder is asked to yield to.
fn asked_by(g: &Fixture) -> Option<String> {
    g.holder("k")
        .and_then(|holder| holder.yield_request)
        .map(|notice| notice.contender.to_string())
}

/// By when the holder learns that it should yield, at a renewal.
fn yield_in_ms(g: &Fixture, held: &HeldLease) -> u64 {
    let renewal = g.renew(held).expect("a live lease");
    renewal.yield_request.expect("a time to yield").yield_in_ms
}

/// The holder learns at its next renewal that it should yield, for whom and by when.
pub(super) fn a_holder_learns_at_its_renewal_for_whom_and_by_when(g: &Fixture) {
    let within_ms = g.ttl_ms() * 2;
    let a = g.take("k", "A");
    assert_eq!(g.renew(&a).expect("a live lease").yield_request, None);
    let request = AcquireLeaseRequest { task: Some(task("urgent")), ..contend(g, "B", 5, within_ms) };
    let _waiting = g.stand_in_line(request);
    let renewal = g.renew(&a).expect("a live lease");
    let notice = renewal.yield_request.expect("a notice");
    assert_eq!((notice.contender, notice.task, notice.priority), (owner("B"), Some(task("urgent")), 5));
    g.assert_ms("the time to yield", notice.yield_in_ms, within_ms);
    assert_eq!(renewal.token, a.token);
    let holder = g.holder("k").expect("a held key");
    let seen = holder.yield_request.expect("people see it too");
    assert_eq!(seen.contender, owner("B"));
    g.assert_ms("as people see it", seen.yield_in_ms, within_ms);
}

/// Renewals get only the remainder, and the lease ends at the yield time.
pub(super) fn renewals_get_only_the_remainder_until_the_yield_time(g: &Fixture) {
    let (ttl_ms, within_ms) = (g.ttl_ms(), g.ttl_ms() * 3 / 2);
    let a = g.take("k", "A");
    let waiting = in_line(g, "B", 1, within_ms);
    g.pass(ttl_ms / 4);
    assert_eq!(g.renew(&a).map(|renewal| renewal.remaining_ms), Ok(ttl_ms), "a ttl is still within the time");
    g.pass(ttl_ms / 2);
    let renewal = g.renew(&a).expect("a live lease");
    assert_eq!(renewal.remaining_ms, within_ms - ttl_ms / 4 - ttl_ms / 2, "only the remainder");
    assert_eq!(renewal.yield_request.as_ref().map(|asked| asked.yield_in_ms), Some(renewal.remaining_ms));
    g.pass(renewal.remaining_ms - 1);
    assert_eq!(g.renew(&a).map(|renewal| renewal.remaining_ms), Ok(1));
    g.pass(1);
    assert_lost(g.renew(&a), &a, LeaseOutcome::Yielded);
    g.pass(1_000);
    let b = waiting.answer().expect("a key that came free");
    assert!(b.token > a.token);
    assert_eq!(g.ending_of(&a).map(|ending| ending.outcome), Some(LeaseOutcome::Yielded));
}

/// P4: what was acknowledged stands: a short notice does not end a lease before its deadline.
pub(super) fn a_notice_never_shortens_what_was_acknowledged(g: &Fixture) {
    let a = g.take("k", "A");
    g.pass(g.ttl_ms() / 2);
    let waiting = in_line(g, "B", 1, 1);
    let left_ms = g.ttl_ms() - g.ttl_ms() / 2;
    g.pass(left_ms / 2);
    let renewal = g.renew(&a).expect("its deadline has not come");
    assert_eq!(renewal.remaining_ms, left_ms - left_ms / 2, "not less, and not more");
    assert_eq!(renewal.yield_request.as_ref().map(|asked| asked.yield_in_ms), Some(0));
    g.pass(left_ms - left_ms / 2 - 1);
    assert!(g.renew(&a).is_ok(), "to the millisecond");
    g.pass(1);
    assert_lost(g.renew(&a), &a, LeaseOutcome::Yielded);
    waiting.answer().expect("a key that came free");
}

/// A holder that yields makes room at once.
pub(super) fn a_holder_that_yields_makes_room_at_once(g: &Fixture) {
    let a = g.take("k", "A");
    let earlier = g.stand_in_line(g.ask_to_wait("k", "C"));
    let waiting = in_line(g, "B", 1, g.ttl_ms());
    assert!(g.renew(&a).expect("a live lease").yield_request.is_some());
    g.release(&a).expect("a live lease");
    let ending = g.ending_of(&a).expect("an ending on record");
    assert_eq!((ending.outcome, ending.by), (LeaseOutcome::Yielded, None), "not of its own accord");
    g.release(&a).expect("the same request again gets the same answer");
    let stats = g.stats();
    assert_eq!((stats.yielded_count, stats.released_count), (1, 0), "it counts as what it was, once");
    let b = waiting.answer().expect("a key that came free");
    assert_eq!(g.holder_name("k").as_deref(), Some("B"), "ahead of those of lower rank");
    let renewal = g.renew(&b).expect("a live lease");
    assert_eq!(
        (renewal.yield_request, renewal.remaining_ms),
        (None, g.ttl_ms()),
        "the notice was not meant for it"
    );
    g.release(&b).expect("a live lease");
    earlier.answer().expect("the next in line");
}

/// Only a contender of higher priority may ask.
pub(super) fn nobody_yields_to_an_equal_or_to_one_who_does_not_ask(g: &Fixture) {
    let a = g.take_with(AcquireLeaseRequest { priority: 3, ..g.ask("k", "A") });
    let _equal = in_line(g, "B", 3, 1_000);
    let _lower = in_line(g, "C", 2, 1_000);
    let _higher_but_content = g.stand_in_line(AcquireLeaseRequest { priority: 9, ..g.ask_to_wait("k", "D") });
    let renewal = g.renew(&a).expect("a live lease");
    assert_eq!((renewal.yield_request, renewal.remaining_ms), (None, g.ttl_ms()));
    assert_eq!(asked_by(g), None);
}

/// If the contender goes away, the notice is withdrawn and the holder may stay.
pub(super) fn a_notice_is_withdrawn_when_its_contender_leaves(g: &Fixture) {
    let a = g.take("k", "A");
    let waiting = in_line(g, "B", 1, 1_000);
    assert_eq!(asked_by(g).as_deref(), Some("B"));
    waiting.leave();
    until("a notice withdrawn", || asked_by(g).is_none());
    let renewal = g.renew(&a).expect("a live lease");
    assert_eq!((renewal.yield_request, renewal.remaining_ms), (None, g.ttl_ms()), "a full ttl again");
    if g.has(TestCapability::TellsEvents) {
        let told = g.facts("k");
        let asked = told
            .iter()
            .position(|fact| matches!(fact, EventData::YieldRequested { .. }))
            .expect("asked");
        assert_eq!(told[asked + 1..], [EventData::YieldWithdrawn { token: a.token }]);
    }
}

/// So too when the contender's time in line is up.
pub(super) fn a_notice_is_withdrawn_when_its_contenders_time_is_up(g: &Fixture) {
    let a = g.take("k", "A");
    let wait_ms = g.ttl_ms() / 3;
    let waiting = g.stand_in_line(AcquireLeaseRequest { wait_ms, ..contend(g, "B", 1, 1_000) });
    assert_eq!(asked_by(g).as_deref(), Some("B"));
    g.pass(wait_ms);
    assert!(waiting.answer().is_err());
    let renewal = g.renew(&a).expect("a live lease");
    assert_eq!((renewal.yield_request, renewal.remaining_ms), (None, g.ttl_ms()));
}

/// And when it asks again without waiting, which gives up its place in line.
pub(super) fn a_notice_is_withdrawn_when_its_contender_no_longer_waits(g: &Fixture) {
    let a = g.take("k", "A");
    let request = contend(g, "B", 1, 1_000);
    let waiting = g.stand_in_line(request.clone());
    assert_eq!(asked_by(g).as_deref(), Some("B"));
    let tried = g.try_with(AcquireLeaseRequest { wait_ms: 0, hold_id_age_ms: 1, ..request });
    assert!(tried.is_err());
    assert_eq!(g.waiters("k"), 0);
    drop(waiting);
    assert_eq!(asked_by(g), None);
    assert_eq!(g.renew(&a).map(|renewal| renewal.remaining_ms), Ok(g.ttl_ms()));
}

/// The highest of several contenders asks; when it goes, the next one does.
pub(super) fn the_highest_contender_asks_and_then_the_next(g: &Fixture) {
    g.take("k", "A");
    let _lower = in_line(g, "B", 2, g.ttl_ms());
    assert_eq!(asked_by(g).as_deref(), Some("B"));
    let higher = in_line(g, "C", 7, g.ttl_ms());
    assert_eq!(asked_by(g).as_deref(), Some("C"));
    let _between = in_line(g, "D", 5, g.ttl_ms());
    assert_eq!(asked_by(g).as_deref(), Some("C"), "not its turn");
    higher.leave();
    until("the next one's turn", || asked_by(g).as_deref() == Some("D"));
}

/// The time to yield counts from when the contender came, also when its turn to ask comes later.
pub(super) fn the_time_to_yield_counts_from_when_the_contender_came(g: &Fixture) {
    let a = g.take_with(AcquireLeaseRequest { ttl_ms: g.ttl_ms() * 10, ..g.ask("k", "A") });
    let higher = in_line(g, "C", 7, g.ttl_ms() * 5);
    let _lower = in_line(g, "B", 2, g.ttl_ms() * 4);
    g.pass(g.ttl_ms());
    higher.leave();
    until("the next one's turn", || asked_by(g).as_deref() == Some("B"));
    g.assert_ms("the time to yield", yield_in_ms(g, &a), g.ttl_ms() * 3);
}

/// A higher contender that comes later may ask for it sooner, but does not put off what was promised.
pub(super) fn a_higher_contender_does_not_put_off_the_time_to_yield(g: &Fixture) {
    let a = g.take_with(AcquireLeaseRequest { ttl_ms: g.ttl_ms() * 10, ..g.ask("k", "A") });
    let _first = in_line(g, "B", 2, g.ttl_ms() * 4);
    let _patient = in_line(g, "C", 5, g.ttl_ms() * 8);
    assert_eq!(asked_by(g).as_deref(), Some("C"));
    g.assert_ms("as the first was promised", yield_in_ms(g, &a), g.ttl_ms() * 4);
    let _hasty = in_line(g, "D", 7, g.ttl_ms() * 2);
    g.assert_ms("as the highest asks", yield_in_ms(g, &a), g.ttl_ms() * 2);
}

/// A contender for several keys asks on all of them, and its notices go when it has one.
pub(super) fn a_contender_for_several_keys_asks_on_all_until_it_has_one(g: &Fixture) {
    let (k, l) = (g.take("k", "A"), g.take("l", "A"));
    let request = AcquireLeaseRequest { any_of: keys(&["k", "l"]), ..contend(g, "B", 1, g.ttl_ms()) };
    let waiting = g.stand_in_line(request);
    assert!(g.renew(&k).expect("a live lease").yield_request.is_some());
    assert!(g.renew(&l).expect("a live lease").yield_request.is_some());
    g.release(&l).expect("a live lease");
    waiting.answer().expect("a key that came free");
    assert_eq!(g.renew(&k).expect("a live lease").yield_request, None);
}

/// The time to yield is short: a holder that learned of it by its next renewal could have none left.
pub(super) fn a_holder_hears_at_once_that_it_is_to_yield(g: &Fixture) {
    let heard = g.hear_of_holds();
    for name in ["k/0", "k/1", "k/2"] {
        g.take(name, "A");
        heard.forget();
        let contender =
            AcquireLeaseRequest { priority: 5, preempt_within_ms: Some(1_000), ..g.ask_to_wait(name, "B") };
        let waiting = g.stand_in_line(contender);
        heard.of(&g.call.namespace, name);
        waiting.leave();
    }
}
