//! The races of leases as interleavings of real sessions: each step in a stated order, and where one must wait for
//! another, that it does is seen.

use fencehold_contract::{CallContext, EventPage, ListEventsRequest};
use fencehold_core::Namespace;
use fencehold_test_store::{TestStore as _, block_on};
use serde_json::{Value, json};

use crate::session::{Calls, Session, StatementResult};
use crate::test_store::PostgresTestStore;

/// A schema without handles: nothing sweeps it but the test.
fn with_calls(play: impl FnOnce(&PostgresTestStore, &Calls<'_>)) {
    let test_store = PostgresTestStore::new();
    play(&test_store, &Calls(test_store.schema));
}

fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap()
}

fn said(said: StatementResult) -> Value {
    let rows = said.unwrap();
    json_of(rows.last().unwrap()[0].as_ref().unwrap())
}

fn token_of(answer: &str) -> u64 {
    json_of(answer)["Ok"]["grant"]["token"]
        .as_u64()
        .unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn r01_a_release_after_the_reclaim_leaves_the_newcomer_alone() {
    with_calls(|test_store, calls| {
        let (a, b) = (Session::new(test_store), Session::new(test_store));
        let old = token_of(&a.value(&calls.acquire("k", 1, "A")));
        test_store.pass(30_000);
        b.value("BEGIN");
        let new = token_of(&b.value(&calls.acquire("k", 2, "B")));
        let releasing = a.run_blocked_by(&b, &calls.release("k", 1, old));
        b.value("COMMIT");
        let (_, answer) = releasing.end();
        let lost = &said(answer)["Err"]["Lost"];
        assert_eq!((&lost["token"], &lost["how"]), (&json!(old), &json!("expired")));
        assert_eq!(lost["current"], new);
        assert_eq!(b.value(&calls.holder("k")), "B");
    });
}

#[test]
fn r02_of_two_that_reclaim_one_wins_and_the_other_sees_the_winner() {
    with_calls(|test_store, calls| {
        let (a, b, c) = (Session::new(test_store), Session::new(test_store), Session::new(test_store));
        a.value(&calls.acquire("k", 1, "A"));
        test_store.pass(30_000);
        b.value("BEGIN");
        let won = token_of(&b.value(&calls.acquire("k", 2, "B")));
        let losing = c.run_blocked_by(&b, &calls.acquire("k", 3, "C"));
        b.value("COMMIT");
        let (_, answer) = losing.end();
        let held = &said(answer)["Err"]["Refused"]["refusal"]["Held"];
        assert_eq!((&held["owner"], &held["token"]), (&json!("B"), &json!(won)));
    });
}

#[test]
fn r02_of_two_that_take_a_new_key_one_wins() {
    with_calls(|test_store, calls| {
        let (a, b) = (Session::new(test_store), Session::new(test_store));
        a.value("BEGIN");
        a.value(&calls.acquire("new", 1, "A"));
        let losing = b.run_blocked_by(&a, &calls.acquire("new", 2, "B"));
        a.value("COMMIT");
        let (_, answer) = losing.end();
        assert_eq!(said(answer)["Err"]["Refused"]["refusal"]["Held"]["owner"], "A");
    });
}

#[test]
fn r02_a_new_key_whose_first_taker_rolls_back_goes_to_the_second_under_its_first_token() {
    with_calls(|test_store, calls| {
        let (a, b) = (Session::new(test_store), Session::new(test_store));
        a.value("BEGIN");
        a.value(&calls.acquire("new", 1, "A"));
        let waiting = b.run_blocked_by(&a, &calls.acquire("new", 2, "B"));
        a.value("ROLLBACK");
        let (_, answer) = waiting.end();
        assert_eq!(said(answer)["Ok"]["grant"]["token"], 1);
    });
}

#[test]
fn r03_a_sweep_waits_for_the_renewal_and_leaves_the_lease() {
    with_calls(|test_store, calls| {
        let (a, sweeper) = (Session::new(test_store), Session::new(test_store));
        let token = token_of(&a.value(&calls.acquire("k", 1, "A")));
        test_store.pass(29_999);
        a.value("BEGIN");
        assert_eq!(a.value(&calls.renew("k", 1, token)), "1");
        // The sweep's list has it: the deadline that it can see is past.
        test_store.pass(1);
        let sweeping = sweeper.run_blocked_by(&a, &calls.sweep());
        a.value("COMMIT");
        sweeping.end().1.unwrap();
        assert_eq!(a.value(&calls.holder("k")), "A");
        assert_eq!(a.value(&calls.renew("k", 1, token)), "1");
    });
}

#[test]
fn r04_r11_a_renewal_that_waits_for_a_revocation_is_refused() {
    with_calls(|test_store, calls| {
        let (a, p) = (Session::new(test_store), Session::new(test_store));
        let token = token_of(&a.value(&calls.acquire("k", 1, "A")));
        p.value("BEGIN");
        p.value(&calls.revoke("k"));
        let renewing = a.run_blocked_by(&p, &calls.renew("k", 1, token));
        p.value("COMMIT");
        let (a, answer) = renewing.end();
        assert_eq!(answer.unwrap()[0][0].as_deref(), Some("0"), "nothing was renewed");
        let lost = json_of(&a.value(&calls.renew_checked("k", 1, token)));
        assert_eq!(lost["Err"]["Lost"]["how"], "revoked");
        assert_eq!(a.value(&calls.holder("k")), "");
    });
}

#[test]
fn r05_a_sweep_leaves_a_key_that_somebody_is_taking() {
    with_calls(|test_store, calls| {
        let (a, b, sweeper) = (Session::new(test_store), Session::new(test_store), Session::new(test_store));
        a.value(&calls.acquire("k", 1, "A"));
        test_store.pass(30_000);
        b.value("BEGIN");
        let token = token_of(&b.value(&calls.acquire("k", 2, "B")));
        assert_eq!(sweeper.value(&calls.sweep()), "0", "it never waits");
        b.value("COMMIT");
        sweeper.value(&calls.sweep());
        assert_eq!(b.value(&calls.renew("k", 2, token)), "1", "untouched");
    });
}

#[test]
fn r08_a_late_renewal_steals_nothing_back() {
    with_calls(|test_store, calls| {
        let (a, b) = (Session::new(test_store), Session::new(test_store));
        let old = token_of(&a.value(&calls.acquire("k", 1, "A")));
        test_store.pass(30_000);
        b.value("BEGIN");
        b.value(&calls.acquire("k", 2, "B"));
        let renewing = a.run_blocked_by(&b, &calls.renew_checked("k", 1, old));
        b.value("COMMIT");
        let (a, answer) = renewing.end();
        assert_eq!(said(answer)["Err"]["Lost"]["how"], "expired");
        assert_eq!(a.value(&calls.renew("k", 1, old)), "0", "nor by the quick way");
        assert_eq!(b.value(&calls.holder("k")), "B");
    });
}

#[test]
fn r12_a_heartbeat_that_waits_for_the_release_revives_nothing() {
    with_calls(|test_store, calls| {
        let (a, heart) = (Session::new(test_store), Session::new(test_store));
        let token = token_of(&a.value(&calls.acquire("k", 1, "A")));
        a.value("BEGIN");
        a.value(&calls.release("k", 1, token));
        let beating = heart.run_blocked_by(&a, &calls.renew("k", 1, token));
        a.value("COMMIT");
        let (heart, answer) = beating.end();
        assert_eq!(answer.unwrap()[0][0].as_deref(), Some("0"));
        assert_eq!(heart.value(&calls.holder("k")), "");
    });
}

#[test]
fn r13_the_same_hold_id_sent_twice_gets_one_lease() {
    with_calls(|test_store, calls| {
        let (first, second) = (Session::new(test_store), Session::new(test_store));
        first.value("BEGIN");
        let token = token_of(&first.value(&calls.acquire("k", 1, "A")));
        let again = second.run_blocked_by(&first, &calls.acquire_again("k", 1, "A"));
        first.value("COMMIT");
        let (_, answer) = again.end();
        let grant = &said(answer)["Ok"]["grant"];
        assert_eq!((&grant["token"], &grant["resumed"]), (&json!(token), &json!(true)));
    });
}

#[test]
fn r10_a_reused_name_adopts_nothing() {
    with_calls(|test_store, calls| {
        let (before, after) = (Session::new(test_store), Session::new(test_store));
        let old = token_of(&before.value(&calls.acquire("k", 1, "W")));
        let refused = said(after.run(&calls.acquire("k", 2, "W")));
        assert_eq!(refused["Err"]["Refused"]["refusal"]["Held"]["token"], old);
        assert_eq!(after.value(&calls.renew("k", 2, old)), "0", "another hold id renews nothing");
    });
}

#[test]
fn r19_one_whose_own_time_is_up_is_not_granted_what_comes_free() {
    with_calls(|test_store, calls| {
        let (a, b) = (Session::new(test_store), Session::new(test_store));
        let schema = test_store.schema;
        let token = token_of(&a.value(&calls.acquire("k", 1, "A")));
        let party = b.value(&format!("SELECT {schema}.party_lives(NULL)"));
        let waiting = calls.acquire("k", 2, "B").replace(
            "NULL, 0, 0, 0::smallint, NULL, NULL, NULL",
            &format!("NULL, 1000, 0, 0::smallint, NULL, NULL, {party}"),
        );
        let waiter = json_of(&b.value(&waiting))["Waiting"]["id"].as_u64().unwrap();
        test_store.pass(1_000);
        // The release is under way when the one in line looks.
        a.value("BEGIN");
        a.value(&calls.release("k", 1, token));
        let looking = b.run_blocked_by(&a, &format!("SELECT {schema}.lease_look({waiter}, '\\x02', 60000)"));
        a.value("COMMIT");
        let (b, answer) = looking.end();
        let told = said(answer);
        assert!(told["Ok"].is_null(), "{told}");
        assert_eq!(b.value(&calls.holder("k")), "");
    });
}

#[test]
fn r14_one_whose_process_has_died_is_passed_over() {
    with_calls(|test_store, calls| {
        let (a, dead, b) = (Session::new(test_store), Session::new(test_store), Session::new(test_store));
        let schema = test_store.schema;
        let token = token_of(&a.value(&calls.acquire("k", 1, "A")));
        let party = |session: &Session| session.value(&format!("SELECT {schema}.party_lives(NULL)"));
        let wait = |session: &Session, hold: u8, owner: &str| {
            let party = party(session);
            let waiting = calls.acquire("k", hold, owner).replace(
                "NULL, 0, 0, 0::smallint, NULL, NULL, NULL",
                &format!("NULL, 60000, 0, 0::smallint, NULL, NULL, {party}"),
            );
            (party, json_of(&session.value(&waiting))["Waiting"]["id"].as_u64().unwrap())
        };
        let (gone, _) = wait(&dead, 2, "D");
        let (_, waiter) = wait(&b, 3, "B");
        // Nothing was heard of it for longer than it is believed.
        dead.value(&format!("UPDATE {schema}.party SET alive_until = clock_timestamp() WHERE id = {gone}"));
        a.value(&calls.release("k", 1, token));
        assert_eq!(a.value(&calls.holder("k")), "B");
        let answer = json_of(&b.value(&format!("SELECT {schema}.lease_look({waiter}, '\\x03', 60000)")));
        assert_eq!(answer["Ok"]["grant"]["token"], token + 1, "no one was granted it in between");
    });
}

#[test]
fn a_waiter_for_two_keys_that_come_free_at_once_is_granted_one() {
    with_calls(|test_store, calls| {
        let (a, b, waiter) = (Session::new(test_store), Session::new(test_store), Session::new(test_store));
        let schema = test_store.schema;
        let one = token_of(&a.value(&calls.acquire("one", 1, "A")));
        let two = token_of(&b.value(&calls.acquire("two", 2, "B")));
        let party = waiter.value(&format!("SELECT {schema}.party_lives(NULL)"));
        waiter.value(
            &calls
                .acquire("one", 3, "W")
                .replace("ARRAY['one']", "ARRAY['one', 'two']")
                .replace(
                    "NULL, 0, 0, 0::smallint, NULL, NULL, NULL",
                    &format!("NULL, 60000, 0, 0::smallint, NULL, NULL, {party}"),
                ),
        );
        a.value("BEGIN");
        a.value(&calls.release("one", 1, one));
        // It has been granted the one, uncommitted: the session that frees the other waits to see.
        let releasing = b.run_blocked_by(&a, &calls.release("two", 2, two));
        a.value("COMMIT");
        releasing.end().1.unwrap();
        assert_eq!(
            (waiter.value(&calls.holder("one")), waiter.value(&calls.holder("two"))),
            ("W".into(), String::new())
        );
    });
}

#[test]
fn r28_two_claimers_and_a_sweep_make_one_holder_and_one_token() {
    with_calls(|test_store, calls| {
        let (a, b, c, sweeper) = (
            Session::new(test_store),
            Session::new(test_store),
            Session::new(test_store),
            Session::new(test_store),
        );
        let old = token_of(&a.value(&calls.acquire("k", 1, "A")));
        test_store.pass(30_000);
        sweeper.value("BEGIN");
        assert_eq!(sweeper.value(&calls.sweep()), "1", "the sweep has noted it, and has not committed");
        let first = b.run_blocked_by(&sweeper, &calls.acquire("k", 2, "B"));
        sweeper.value("COMMIT");
        let (_, answer) = first.end();
        assert_eq!(said(answer)["Ok"]["grant"]["token"], old + 1);
        assert_eq!(
            said(c.run(&calls.acquire("k", 3, "C")))["Err"]["Refused"]["refusal"]["Held"]["owner"],
            "B"
        );
    });
}

#[test]
fn r32_the_recorded_ttl_counts_not_a_contenders() {
    with_calls(|test_store, calls| {
        let (a, b) = (Session::new(test_store), Session::new(test_store));
        a.value(&calls.acquire("k", 1, "A"));
        test_store.pass(29_999);
        let shorter = calls.acquire("k", 2, "B").replace("30000", "100");
        assert_eq!(json_of(&b.value(&shorter))["Err"]["Refused"]["refusal"]["Held"]["expires_in_ms"], 1);
    });
}

#[test]
fn r36_a_key_that_is_being_collected_goes_on_above_its_last_token() {
    with_calls(|test_store, calls| {
        let (a, b, sweeper) = (Session::new(test_store), Session::new(test_store), Session::new(test_store));
        for hold in 1..=5 {
            let token = token_of(&a.value(&calls.acquire("k", hold, "A")));
            a.value(&calls.release("k", hold, token));
        }
        test_store.pass(7_260_000);
        sweeper.value("BEGIN");
        sweeper.value(&calls.sweep());
        // The row is deleted, and the deletion not committed: a contender waits for floor and deletion together.
        let taking = b.run_blocked_by(&sweeper, &calls.acquire("k", 9, "B"));
        sweeper.value("COMMIT");
        let (_, answer) = taking.end();
        assert!(said(answer)["Ok"]["grant"]["token"].as_u64().unwrap() > 5);
    });
}

/// Reads events after a cursor.
pub(crate) fn reader(test_store: &PostgresTestStore) -> impl Fn(Option<u64>) -> EventPage + use<> {
    let (store, call) = (test_store.store(), CallContext::new(Namespace::default()));
    move |after| {
        let request = ListEventsRequest { cursor: after, limit: 100, ..Default::default() };
        block_on(store.list_events(&call, request)).unwrap()
    }
}

#[test]
fn events_that_are_committed_late_are_not_skipped() {
    with_calls(|test_store, calls| {
        let (early, late) = (Session::new(test_store), Session::new(test_store));
        let read = reader(test_store);
        // A namespace is made with its first key, and the second session waits for that.
        early.value(&calls.acquire("first", 0, "B"));
        let first = read(None);
        late.value("BEGIN");
        late.value(&calls.acquire("late", 1, "A"));
        early.value(&calls.acquire("early", 2, "B"));
        // The one that took its number first has not committed: what came after it does not wait for it.
        let before = read(Some(first.next_cursor));
        let keys: Vec<_> = before.events.iter().map(|event| event.key.as_str()).collect();
        assert_eq!(keys, ["early"]);
        late.value("COMMIT");
        let page = read(Some(before.next_cursor));
        let keys: Vec<_> = page.events.iter().map(|event| event.key.as_str()).collect();
        assert_eq!(keys, ["late"]);
        // One that is rolled back leaves a gap, which is passed over.
        late.value("BEGIN");
        late.value(&calls.acquire("never", 3, "A"));
        late.value("ROLLBACK");
        early.value(&calls.acquire("after", 4, "B"));
        assert_eq!(read(Some(page.next_cursor)).events[0].key.as_str(), "after");
    });
}

/// The transaction with the lower number may commit first, and have the later event.
#[test]
fn an_event_of_a_transaction_that_began_later_and_is_still_open_is_not_skipped() {
    with_calls(|test_store, calls| {
        let (early, late) = (Session::new(test_store), Session::new(test_store));
        let read = reader(test_store);
        early.value(&calls.acquire("first", 0, "B"));
        let first = read(None);
        early.value("BEGIN");
        early.value("SELECT pg_current_xact_id()");
        late.value("BEGIN");
        late.value(&calls.acquire("late", 1, "A"));
        early.value(&calls.acquire("early", 2, "B"));
        early.value("COMMIT");
        let before = read(Some(first.next_cursor));
        let keys: Vec<_> = before.events.iter().map(|event| event.key.as_str()).collect();
        assert_eq!(keys, ["early"]);
        late.value("COMMIT");
        let page = read(Some(before.next_cursor));
        let keys: Vec<_> = page.events.iter().map(|event| event.key.as_str()).collect();
        assert_eq!(keys, ["late"]);
    });
}

/// Numbers of places in line can be guessed: only who has the hold id can look after its place, or leave it.
#[test]
fn nobody_throws_another_out_of_line() {
    with_calls(|test_store, calls| {
        let (a, b, thief) = (Session::new(test_store), Session::new(test_store), Session::new(test_store));
        let schema = test_store.schema;
        let token = token_of(&a.value(&calls.acquire("k", 1, "A")));
        let party = b.value(&format!("SELECT {schema}.party_lives(NULL)"));
        let waiting = calls.acquire("k", 2, "B").replace(
            "NULL, 0, 0, 0::smallint, NULL, NULL, NULL",
            &format!("NULL, 60000, 0, 0::smallint, NULL, NULL, {party}"),
        );
        let waiter = json_of(&b.value(&waiting))["Waiting"]["id"].as_u64().unwrap();
        thief.value("SET ROLE fencehold_worker");
        for call in ["lease_leave", "lease_look"] {
            assert_eq!(thief.value(&format!("SELECT {schema}.{call}({waiter}, '\\x09', 1000)")), "");
        }
        a.value(&calls.release("k", 1, token));
        assert_eq!(thief.value(&format!("SELECT {schema}.lease_look({waiter}, '\\x09', 1000)")), "");
        let told = json_of(&b.value(&format!("SELECT {schema}.lease_look({waiter}, '\\x02', 1000)")));
        assert_eq!(told["Ok"]["grant"]["token"], token + 1, "{told}");
    });
}

/// Two want the same two keys, in opposite order, while others are about to hold them: they are locked in one order, whatever was asked.
#[test]
fn new_keys_are_locked_in_one_order_whatever_the_callers_say() {
    with_calls(|test_store, calls| {
        let sessions = [(); 4].map(|()| Session::new(test_store));
        let [p, q, a, b] = sessions;
        // A namespace is made with its first key.
        p.value(&calls.acquire("first", 9, "F"));
        for (session, key, hold, owner) in [(&p, "x", 1, "P"), (&q, "y", 2, "Q")] {
            session.value("BEGIN");
            session.value(&calls.acquire(key, hold, owner));
        }
        let of_two = |hold, owner: &str, keys: &str| {
            calls.acquire("x", hold, owner).replace("ARRAY['x']", &format!("ARRAY[{keys}]"))
        };
        let a = a.run_blocked_by(&p, &of_two(3, "A", "'x', 'y'"));
        let b = b.start_blocked(&of_two(4, "B", "'y', 'x'"));
        p.value("COMMIT");
        // The first has what it waited for, and now waits for the other.
        a.wait_until_blocked_by(&q);
        q.value("COMMIT");
        for step in [a, b] {
            let (_, answer) = step.end();
            assert!(said(answer)["Err"]["Refused"]["refusal"]["Held"].is_object());
        }
    });
}
