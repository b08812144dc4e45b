//! The races of leases as interleavings of real sessions: each step in a stated order, and where one must wait for
//! another, that it does is seen.

use fencehold_contract::{EventPage, ListEventsRequest};
use fencehold_test_servers::calls::call;
use fencehold_test_store::{TestStore as _, block_on};
use serde_json::json;

use crate::session::{any_of, with_sessions};
use crate::test_store::PostgresTestStore;

#[test]
fn r01_a_release_after_the_reclaim_leaves_the_newcomer_alone() {
    let (test_store, calls, [a, b]) = with_sessions();
    let old = a.take(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    b.value("BEGIN");
    let new = b.take(&calls.acquire("k", 2, "B"));
    let releasing = a.run_blocked_by(&b, &calls.release("k", 1, old));
    b.value("COMMIT");
    let lost = &releasing.json()["Err"]["Lost"];
    assert_eq!((&lost["token"], &lost["how"]), (&json!(old), &json!("expired")));
    assert_eq!(lost["current"], new);
    assert_eq!(b.value(&calls.holder("k")), "B");
}

#[test]
fn r02_of_two_that_reclaim_one_wins_and_the_other_sees_the_winner() {
    let (test_store, calls, [a, b, c]) = with_sessions();
    a.value(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    b.value("BEGIN");
    let won = b.take(&calls.acquire("k", 2, "B"));
    let losing = c.run_blocked_by(&b, &calls.acquire("k", 3, "C"));
    b.value("COMMIT");
    let held = &losing.json()["Err"]["Refused"]["refusal"]["Held"];
    assert_eq!((&held["owner"], &held["token"]), (&json!("B"), &json!(won)));
}

#[test]
fn r02_of_two_that_take_a_new_key_one_wins() {
    let (_test_store, calls, [a, b]) = with_sessions();
    a.value("BEGIN");
    a.value(&calls.acquire("new", 1, "A"));
    let losing = b.run_blocked_by(&a, &calls.acquire("new", 2, "B"));
    a.value("COMMIT");
    assert_eq!(losing.json()["Err"]["Refused"]["refusal"]["Held"]["owner"], "A");
}

#[test]
fn r02_a_new_key_whose_first_taker_rolls_back_goes_to_the_second_under_its_first_token() {
    let (_test_store, calls, [a, b]) = with_sessions();
    a.value("BEGIN");
    a.value(&calls.acquire("new", 1, "A"));
    let waiting = b.run_blocked_by(&a, &calls.acquire("new", 2, "B"));
    a.value("ROLLBACK");
    assert_eq!(waiting.json()["Ok"]["grant"]["token"], 1);
}

#[test]
fn r03_a_sweep_waits_for_the_renewal_and_leaves_the_lease() {
    let (test_store, calls, [a, sweeper]) = with_sessions();
    let token = a.take(&calls.acquire("k", 1, "A"));
    test_store.pass(29_999);
    a.value("BEGIN");
    assert_eq!(a.value(&calls.renew("k", 1, token)), "1");
    // The sweep's list has it: the deadline that it can see is past.
    test_store.pass(1);
    let sweeping = sweeper.run_blocked_by(&a, &calls.sweep());
    a.value("COMMIT");
    sweeping.value();
    assert_eq!(a.value(&calls.holder("k")), "A");
    assert_eq!(a.value(&calls.renew("k", 1, token)), "1");
}

#[test]
fn r04_r11_a_renewal_that_waits_for_a_revocation_is_refused() {
    let (_test_store, calls, [a, p]) = with_sessions();
    let token = a.take(&calls.acquire("k", 1, "A"));
    p.value("BEGIN");
    p.value(&calls.revoke("k"));
    let renewing = a.run_blocked_by(&p, &calls.renew("k", 1, token));
    p.value("COMMIT");
    let (a, renewed) = renewing.ends_well();
    assert_eq!(renewed, "0", "nothing was renewed");
    assert_eq!(a.json(&calls.renew_checked("k", 1, token))["Err"]["Lost"]["how"], "revoked");
    assert_eq!(a.value(&calls.holder("k")), "");
}

#[test]
fn r05_a_sweep_leaves_a_key_that_somebody_is_taking() {
    let (test_store, calls, [a, b, sweeper]) = with_sessions();
    a.value(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    b.value("BEGIN");
    let token = b.take(&calls.acquire("k", 2, "B"));
    assert_eq!(sweeper.value(&calls.sweep()), "0", "it never waits");
    b.value("COMMIT");
    sweeper.value(&calls.sweep());
    assert_eq!(b.value(&calls.renew("k", 2, token)), "1", "untouched");
}

#[test]
fn r08_a_late_renewal_steals_nothing_back() {
    let (test_store, calls, [a, b]) = with_sessions();
    let old = a.take(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    b.value("BEGIN");
    b.value(&calls.acquire("k", 2, "B"));
    let renewing = a.run_blocked_by(&b, &calls.renew_checked("k", 1, old));
    b.value("COMMIT");
    assert_eq!(renewing.json()["Err"]["Lost"]["how"], "expired");
    assert_eq!(b.value(&calls.renew("k", 1, old)), "0", "nor by the quick way");
    assert_eq!(b.value(&calls.holder("k")), "B");
}

#[test]
fn r12_a_heartbeat_that_waits_for_the_release_revives_nothing() {
    let (_test_store, calls, [a, heart]) = with_sessions();
    let token = a.take(&calls.acquire("k", 1, "A"));
    a.value("BEGIN");
    a.value(&calls.release("k", 1, token));
    let beating = heart.run_blocked_by(&a, &calls.renew("k", 1, token));
    a.value("COMMIT");
    assert_eq!(beating.value(), "0");
    assert_eq!(a.value(&calls.holder("k")), "");
}

#[test]
fn r13_the_same_hold_id_sent_twice_gets_one_lease() {
    let (_test_store, calls, [first, second]) = with_sessions();
    first.value("BEGIN");
    let token = first.take(&calls.acquire("k", 1, "A"));
    let again = second.run_blocked_by(&first, &calls.acquire_again("k", 1, "A"));
    first.value("COMMIT");
    let grant = &again.json()["Ok"]["grant"];
    assert_eq!((&grant["token"], &grant["resumed"]), (&json!(token), &json!(true)));
}

#[test]
fn r10_a_reused_name_adopts_nothing() {
    let (_test_store, calls, [before, after]) = with_sessions();
    let old = before.take(&calls.acquire("k", 1, "W"));
    let refused = after.json(&calls.acquire("k", 2, "W"));
    assert_eq!(refused["Err"]["Refused"]["refusal"]["Held"]["token"], old);
    assert_eq!(after.value(&calls.renew("k", 2, old)), "0", "another hold id renews nothing");
}

#[test]
fn r19_one_whose_own_time_is_up_is_not_granted_what_comes_free() {
    let (test_store, calls, [a, b]) = with_sessions();
    let token = a.take(&calls.acquire("k", 1, "A"));
    let (_, waiter) = calls.line_up(&b, "k", 2, "B", 1_000);
    test_store.pass(1_000);
    // The release is under way when the one in line looks.
    a.value("BEGIN");
    a.value(&calls.release("k", 1, token));
    let looking = b.run_blocked_by(&a, &calls.look(waiter, 2));
    a.value("COMMIT");
    let told = looking.json();
    assert!(told["Ok"].is_null(), "{told}");
    assert_eq!(a.value(&calls.holder("k")), "");
}

#[test]
fn r14_one_whose_process_has_died_is_passed_over() {
    let (_test_store, calls, [a, dead, b]) = with_sessions();
    let token = a.take(&calls.acquire("k", 1, "A"));
    let (gone, _) = calls.line_up(&dead, "k", 2, "D", 60_000);
    let (_, waiter) = calls.line_up(&b, "k", 3, "B", 60_000);
    // Nothing was heard of it for longer than it is believed.
    dead.value(&format!("UPDATE party SET alive_until = clock_timestamp() WHERE id = {gone}"));
    a.value(&calls.release("k", 1, token));
    assert_eq!(a.value(&calls.holder("k")), "B");
    assert_eq!(
        b.json(&calls.look(waiter, 3))["Ok"]["grant"]["token"],
        token + 1,
        "no one was granted it in between"
    );
}

#[test]
fn a_waiter_for_two_keys_that_come_free_at_once_is_granted_one() {
    let (_test_store, calls, [a, b, waiter]) = with_sessions();
    let one = a.take(&calls.acquire("one", 1, "A"));
    let two = b.take(&calls.acquire("two", 2, "B"));
    calls.line_up(&waiter, &any_of(&["one", "two"]), 3, "W", 60_000);
    a.value("BEGIN");
    a.value(&calls.release("one", 1, one));
    // It has been granted the one, uncommitted: the session that frees the other waits to see.
    let releasing = b.run_blocked_by(&a, &calls.release("two", 2, two));
    a.value("COMMIT");
    releasing.value();
    assert_eq!(["one", "two"].map(|key| waiter.value(&calls.holder(key))), ["W", ""]);
}

#[test]
fn r28_two_claimers_and_a_sweep_make_one_holder_and_one_token() {
    let (test_store, calls, [a, b, c, sweeper]) = with_sessions();
    let old = a.take(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    sweeper.value("BEGIN");
    assert_eq!(sweeper.value(&calls.sweep()), "1", "the sweep has noted it, and has not committed");
    let first = b.run_blocked_by(&sweeper, &calls.acquire("k", 2, "B"));
    sweeper.value("COMMIT");
    assert_eq!(first.json()["Ok"]["grant"]["token"], old + 1);
    let refused = c.json(&calls.acquire("k", 3, "C"));
    assert_eq!(refused["Err"]["Refused"]["refusal"]["Held"]["owner"], "B");
}

#[test]
fn r32_the_recorded_ttl_counts_not_a_contenders() {
    let (test_store, calls, [a, b]) = with_sessions();
    a.value(&calls.acquire("k", 1, "A"));
    test_store.pass(29_999);
    let shorter = calls.acquire("k", 2, "B").replace("30000", "100");
    assert_eq!(b.json(&shorter)["Err"]["Refused"]["refusal"]["Held"]["expires_in_ms"], 1);
}

#[test]
fn r36_a_key_that_is_being_collected_goes_on_above_its_last_token() {
    let (test_store, calls, [a, b, sweeper]) = with_sessions();
    for hold in 1..=5 {
        let token = a.take(&calls.acquire("k", hold, "A"));
        a.value(&calls.release("k", hold, token));
    }
    test_store.pass(7_260_000);
    sweeper.value("BEGIN");
    sweeper.value(&calls.sweep());
    // The row is deleted, and the deletion not committed: a contender waits for floor and deletion together.
    let taking = b.run_blocked_by(&sweeper, &calls.acquire("k", 9, "B"));
    sweeper.value("COMMIT");
    assert!(taking.json()["Ok"]["grant"]["token"].as_u64().unwrap() > 5);
}

/// Reads events after a cursor.
pub(crate) fn reader(test_store: &PostgresTestStore) -> impl Fn(Option<u64>) -> EventPage + use<> {
    let store = test_store.store();
    move |after| {
        let request = ListEventsRequest { cursor: after, limit: 100, ..Default::default() };
        block_on(store.list_events(&call(), request)).unwrap()
    }
}

pub(crate) fn keys(page: &EventPage) -> Vec<&str> {
    page.events.iter().map(|event| event.key.as_str()).collect()
}

#[test]
fn events_that_are_committed_late_are_not_skipped() {
    let (test_store, calls, [early, late]) = with_sessions();
    let read = reader(&test_store);
    // A namespace is made with its first key, and the second session waits for that.
    early.value(&calls.acquire("first", 0, "B"));
    let first = read(None);
    late.value("BEGIN");
    late.value(&calls.acquire("late", 1, "A"));
    early.value(&calls.acquire("early", 2, "B"));
    // The one that took its number first has not committed: what came after it does not wait for it.
    let before = read(Some(first.next_cursor));
    assert_eq!(keys(&before), ["early"]);
    late.value("COMMIT");
    let page = read(Some(before.next_cursor));
    assert_eq!(keys(&page), ["late"]);
    // One that is rolled back leaves a gap, which is passed over.
    late.value("BEGIN");
    late.value(&calls.acquire("never", 3, "A"));
    late.value("ROLLBACK");
    early.value(&calls.acquire("after", 4, "B"));
    assert_eq!(read(Some(page.next_cursor)).events[0].key.as_str(), "after");
}

/// The transaction with the lower number may commit first, and have the later event.
#[test]
fn an_event_of_a_transaction_that_began_later_and_is_still_open_is_not_skipped() {
    let (test_store, calls, [early, late]) = with_sessions();
    let read = reader(&test_store);
    early.value(&calls.acquire("first", 0, "B"));
    let first = read(None);
    early.value("BEGIN");
    early.value("SELECT pg_current_xact_id()");
    late.value("BEGIN");
    late.value(&calls.acquire("late", 1, "A"));
    early.value(&calls.acquire("early", 2, "B"));
    early.value("COMMIT");
    let before = read(Some(first.next_cursor));
    assert_eq!(keys(&before), ["early"]);
    late.value("COMMIT");
    let page = read(Some(before.next_cursor));
    assert_eq!(keys(&page), ["late"]);
}

/// Numbers of places in line can be guessed: only who has the hold id can look after its place, or leave it.
#[test]
fn nobody_throws_another_out_of_line() {
    let (_test_store, calls, [a, b, thief]) = with_sessions();
    let token = a.take(&calls.acquire("k", 1, "A"));
    let (_, waiter) = calls.line_up(&b, "k", 2, "B", 60_000);
    thief.value("SET ROLE fencehold_worker");
    let look = calls.look(waiter, 9);
    for call in [&look.replace("lease_look", "lease_leave"), &look] {
        assert_eq!(thief.value(call), "", "{call}");
    }
    a.value(&calls.release("k", 1, token));
    assert_eq!(thief.value(&look), "");
    let told = b.json(&calls.look(waiter, 2));
    assert_eq!(told["Ok"]["grant"]["token"], token + 1, "{told}");
}

/// Two want the same two keys, in opposite order, while others are about to hold them: they are locked in one order, whatever was asked.
#[test]
fn new_keys_are_locked_in_one_order_whatever_the_callers_say() {
    let (_test_store, calls, [p, q, a, b]) = with_sessions();
    // A namespace is made with its first key.
    p.value(&calls.acquire("first", 9, "F"));
    for (session, key, hold, owner) in [(&p, "x", 1, "P"), (&q, "y", 2, "Q")] {
        session.value("BEGIN");
        session.value(&calls.acquire(key, hold, owner));
    }
    let a = a.run_blocked_by(&p, &calls.acquire(&any_of(&["x", "y"]), 3, "A"));
    let b = b.start_blocked(&calls.acquire(&any_of(&["y", "x"]), 4, "B"));
    p.value("COMMIT");
    // The first has what it waited for, and now waits for the other.
    a.wait_until_blocked_by(&q);
    q.value("COMMIT");
    for step in [a, b] {
        assert!(step.json()["Err"]["Refused"]["refusal"]["Held"].is_object());
    }
}
