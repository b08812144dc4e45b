//! Closing and opening again: what was acknowledged is there, and nothing is given early.

use super::prelude::*;

/// A handle that was closed says so.
pub(super) fn a_closed_handle_says_that_it_is_closed(g: &Fixture) {
    g.take("k", "A");
    let store: std::sync::Arc<dyn LeaseStore> = g.test_store.store();
    g.close();
    drop(store);
    assert_matches!(g.acquire(g.ask("l", "A")), Err(StoreError::Unavailable { .. }));
    // And once more: closing twice is no harm.
    g.close();
}

/// R23: leases in flight survive: none is granted early, and their holders go on.
pub(super) fn a_live_lease_survives_a_restart(g: &Fixture) {
    let a = g.take_with(AcquireLeaseRequest { task: Some(task("run-42")), priority: 3, ..g.ask("k", "A") });
    g.test_store.restart();
    assert_held_by(g.try_take("k", "B"), &a);
    let holder = g.holder("k").expect("a held key");
    assert_eq!((holder.task, holder.priority, holder.ttl_ms), (Some(task("run-42")), 3, g.ttl_ms()));
    assert!(holder.remaining_ms <= g.ttl_ms());
    let again = g.take_with(AcquireLeaseRequest { hold_id_age_ms: 1, ..a.request.clone() });
    assert_eq!((again.token, again.resumed), (a.token, true));
    assert_eq!(g.renew(&a).map(|renewal| renewal.token), Ok(a.token));
    g.release(&a).expect("a live lease");
}

/// R23: all end within a ttl and a second, also those that no caller asks about.
pub(super) fn a_lease_in_flight_ends_on_time_after_a_restart(g: &Fixture) {
    let a = g.take("k", "A");
    g.pass(g.ttl_ms() / 2);
    g.test_store.restart();
    assert_held_by(g.try_take("k", "B"), &a);
    if g.capabilities().supports_waiting {
        let waiting = g.stand_in_line(g.ask_to_wait("k", "B"));
        g.pass(g.ttl_ms());
        g.pass(1_000);
        assert!(waiting.answer().expect("a key that came free").token > a.token);
    } else {
        g.pass(g.test_store.over_after_ms(g.ttl_ms()) + 1_000);
        assert!(g.take("k", "B").token > a.token);
    }
}

/// R23: time passes while no process serves.
pub(super) fn a_lease_that_ran_out_while_nobody_served_is_over(g: &Fixture) {
    let a = g.take("k", "A");
    g.test_store.restart();
    g.pass(g.ttl_ms());
    assert_lost(g.renew(&a), &a, LeaseOutcome::Expired);
    assert!(g.take("k", "B").token > a.token);
}

/// P6: a renewal that was acknowledged holds over a restart.
pub(super) fn a_renewed_deadline_survives_a_restart(g: &Fixture) {
    let a = g.take("k", "A");
    g.pass(g.ttl_ms() * 2 / 3);
    g.renew(&a).expect("a live lease");
    g.test_store.restart();
    g.pass(g.ttl_ms() * 2 / 3);
    assert_held_by(g.try_take("k", "B"), &a);
    g.renew(&a).expect("a live lease");
}

/// P2: tokens go on where they were, on held, free and revoked keys.
pub(super) fn tokens_grow_over_a_restart(g: &Fixture) {
    g.churn("free", 3);
    let free = g.view("free").expect("a key that was held").token;
    g.take("revoked", "A");
    let consumed = g.revoke_key("revoked").revoked.consumed_token;
    g.test_store.restart();
    assert!(g.take("free", "B").token > free);
    assert!(g.take("revoked", "B").token > consumed);
}

/// R13: a hold id that ended before stays ended, remembered or not.
pub(super) fn an_ended_hold_id_stays_ended_over_a_restart(g: &Fixture) {
    let a = g.take("k", "A");
    g.release(&a).expect("a live lease");
    g.test_store.restart();
    // No younger than it can be: real stores take their time over what comes now.
    let again = AcquireLeaseRequest { hold_id_age_ms: HOLD_AGE_MS_MAX / 2, ..a.request.clone() };
    assert_ended(g.try_with(again.clone()), &a, LeaseOutcome::Released);
    assert_eq!(g.release(&a), Ok(a.token), "the same release, the same answer");
    g.churn("k", HISTORY_MAX);
    g.test_store.restart();
    let answer = g.try_with(again).map(|held| held.token);
    assert_eq!(answer, Err(Refusal::HoldIdUsed { token: None, outcome: None }));
}

/// P10: history, with names and reasons, is still there.
pub(super) fn history_survives_a_restart(g: &Fixture) {
    g.take_with(AcquireLeaseRequest { task: Some(task("run-1")), ..g.ask("k", "A") });
    g.revoke_key("k");
    g.take_and_run_out("k", "B");
    let before = g.take("k", "C");
    let endings = g.view("k").expect("a held key").endings;
    assert_eq!(endings.len(), 2);
    g.test_store.restart();
    let view = g.view("k").expect("a held key");
    assert_eq!((view.endings, view.token), (endings, before.token));
}

/// A line does not outlive a restart, so no holder is asked to yield to a waiter that is gone.
pub(super) fn a_notice_does_not_outlive_the_line(g: &Fixture) {
    let a = g.take("k", "A");
    let request =
        AcquireLeaseRequest { priority: 5, preempt_within_ms: Some(1_000), ..g.ask_to_wait("k", "B") };
    let contender = g.start_raw(request);
    until("a notice", || g.holder("k").is_some_and(|holder| holder.yield_request.is_some()));
    g.test_store.restart();
    drop(contender);
    until("a line that is empty", || g.waiters("k") == 0);
    let renewal = g.renew(&a).expect("a live lease");
    assert_eq!((renewal.yield_request, renewal.remaining_ms), (None, g.ttl_ms()));
}

/// A cursor holds over a restart: nothing is reported twice, nothing is skipped, numbers go on.
pub(super) fn an_event_cursor_survives_a_restart(g: &Fixture) {
    let a = g.take("k", "A");
    let all = ListEventsRequest { limit: 100, ..ListEventsRequest::default() };
    let before = g.events_page(all.clone()).expect("a page");
    g.test_store.restart();
    assert_eq!(g.events_page(all.clone()).expect("a page").events, before.events);
    g.release(&a).expect("a live lease");
    let page = g
        .events_page(ListEventsRequest { cursor: Some(before.next_cursor), ..all })
        .expect("a page");
    let facts: Vec<_> = page.events.iter().map(|event| &event.data).collect();
    assert_matches!(facts[..], [EventData::LeaseEnded { outcome: LeaseOutcome::Released, .. }]);
    assert!(page.events[0].seq > before.next_cursor);
}

/// R36: a floor survives what it stands for.
pub(super) fn a_floor_survives_a_restart(g: &Fixture) {
    g.churn("k", 10);
    let last = g.view("k").expect("a key that was held").token;
    super::collected::until_collected(g, "k");
    g.test_store.restart();
    assert_eq!(g.view("k"), None);
    assert!(g.take("k", "A").token > last);
}

/// R24: a store that was closed by an advance stays closed for its time.
pub(super) fn an_advance_holds_over_a_restart(g: &Fixture) {
    let a = g.take("k", "A");
    let advanced = g.advance(1_000).expect("an advance");
    g.test_store.restart();
    assert_matches!(g.acquire(g.ask("k", "B")), Err(StoreError::Unavailable { .. }), "granted too early");
    g.test_store.open_again(advanced.closed_for_ms);
    assert!(g.take("k", "B").token.get() > a.token.get() + 1_000);
    assert!(g.take("never-heard-of", "B").token.get() > 1_000);
    assert!(g.in_namespace("never-heard-of").take("k", "B").token.get() > 1_000);
}
