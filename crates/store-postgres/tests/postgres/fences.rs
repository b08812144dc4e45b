//! Fences in users' own transactions.

use fencehold_contract::{AcquireLeaseRequest, BlockedWrite, ListEventsRequest, ListLeasesRequest};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{BlockedAction, EventData};
use fencehold_test_servers::calls::{
    OneByOne as _, call, held_by, key, lease_request, revoke_key, unavailable,
};
use fencehold_test_store::{TestStore as _, block_on};

use crate::session::with_sessions;

#[test]
fn only_the_newest_token_passes_and_each_refusal_has_its_own_sqlstate() {
    let (test_store, calls, [user]) = with_sessions();
    let store = test_store.store();
    let a = store.take(lease_request("k", 1, "A"));
    user.value(&calls.fence("k", a.token.get()));
    // Expired, and not taken since: it passes, noted or not.
    test_store.pass(30_000);
    user.value(&calls.fence("k", a.token.get()));
    user.value(&calls.sweep());
    user.value(&calls.fence("k", a.token.get()));
    let b = store.take(lease_request("k", 2, "B"));
    let (code, said) = user.refusal(&calls.fence("k", a.token.get()));
    assert_eq!((code.as_str(), said.as_str()), ("FH001", "k: token 1 is stale; the newest is 2"));
    user.value(&calls.fence("k", b.token.get()));
    store.release_one(&b).unwrap();
    let (code, said) = user.refusal(&calls.fence("k", b.token.get()));
    assert_eq!(code, "FH002");
    assert_eq!(said, "k: the lease under token 2 has ended: it was released");
    let c = store.take(lease_request("k", 3, "C"));
    block_on(store.revoke(&call(), revoke_key("k"))).unwrap();
    assert_eq!(user.refusal(&calls.fence("k", c.token.get())).0, "FH001", "force consumed a token");
    assert_eq!(user.refusal(&calls.fence("k", 99)).0, "FH003");
    assert_eq!(user.refusal(&calls.fence("never-held", 1)).0, "FH003");
}

/// R41.
#[test]
fn while_a_fenced_transaction_is_open_its_holder_renews_and_nobody_else_is_granted_the_key() {
    let (test_store, calls, [user]) = with_sessions();
    let store = test_store.store();
    let a = store.take(lease_request("k", 1, "A"));
    store.take(lease_request("other", 2, "A"));
    user.value("BEGIN");
    user.value(&calls.fence("k", a.token.get()));
    for _ in 0..9 {
        test_store.pass(10_000);
        assert_eq!(store.renew_one(&a).unwrap().remaining_ms, 30_000, "its own renewals go on");
    }
    let holder = |hold: u8| held_by(block_on(store.acquire(&call(), lease_request("k", hold, "B")))).0;
    assert_eq!(holder(3), "A");
    // Also when its deadline has passed.
    test_store.pass(40_000);
    assert_eq!(holder(4), "A");
    // Another of several keys can be had all the same.
    let any = AcquireLeaseRequest { any_of: vec![key("k"), key("free")], ..lease_request("k", 5, "B") };
    assert_eq!(store.take(any).key.as_str(), "free");
    // Force waits within its time, and then says for whom.
    let why = unavailable(block_on(store.revoke(&call().with_timeout_ms(1_500), revoke_key("k"))));
    assert!(why.contains(&format!("backend {}", user.pid)) && why.contains("k has a fence"), "{why}");
    user.value("CREATE TEMPORARY TABLE written (what text); INSERT INTO written VALUES ('business')");
    user.value("COMMIT");
    assert_eq!(user.value("SELECT what FROM written"), "business");
    assert!(store.take(lease_request("k", 6, "B")).token > a.token);
}

#[test]
fn a_fence_waits_for_a_grant_under_way_and_then_refuses() {
    let (test_store, calls, [a, b]) = with_sessions();
    a.value(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    b.value("BEGIN");
    b.value(&calls.acquire("k", 2, "B"));
    let fencing = a.run_blocked_by(&b, &calls.fence("k", 1));
    b.value("COMMIT");
    assert_eq!(fencing.end().1.unwrap_err().0, "FH001");
}

#[test]
fn a_grant_waits_for_a_fence_under_way() {
    let (test_store, calls, [a, b]) = with_sessions();
    a.value(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    a.value("BEGIN");
    a.value(&calls.fence("k", 1));
    let taking = b.run_blocked_by(&a, &calls.acquire("k", 2, "B"));
    a.value("COMMIT");
    taking.value();
    assert_eq!(a.value(&calls.holder("k")), "B");
}

#[test]
fn an_abandoned_fence_ends_by_itself_and_never_later_than_what_is_in_force() {
    let (test_store, calls, [user, other]) = with_sessions();
    user.value(&calls.acquire("k", 1, "A"));
    let limit = |before: &str| {
        user.value(&format!("BEGIN; {before}; {}", calls.fence("k", 1)));
        let limit = user.value("SHOW idle_in_transaction_session_timeout");
        user.value("ROLLBACK");
        limit
    };
    assert_eq!(limit("SELECT 1"), "5min");
    assert_eq!(limit("SET LOCAL idle_in_transaction_session_timeout = '1min'"), "1min");
    assert_eq!(limit("SET LOCAL idle_in_transaction_session_timeout = '1h'"), "5min");
    assert_eq!(limit("SET LOCAL fencehold.fence_idle_timeout_ms = 20000"), "20s");
    // And it does end: the call that waited for it goes on.
    user.value(&format!("BEGIN; SET LOCAL fencehold.fence_idle_timeout_ms = 300; {}", calls.fence("k", 1)));
    test_store.pass(30_000);
    other.value(&calls.acquire("k", 2, "B"));
    assert_eq!(other.value(&calls.holder("k")), "B");
}

/// R18.
#[test]
fn a_raised_mark_refuses_an_older_token_before_anything_was_written() {
    let (_test_store, _, [old, new, beside]) = with_sessions();
    let raise = |token: u64| format!("SELECT raise_mark('accounts', {token})");
    let guard = |token: u64| format!("SELECT fence_resource('accounts', {token})");
    old.value(&guard(33));
    new.value(&raise(34));
    let (code, said) = old.refusal(&guard(33));
    assert_eq!((&*code, &*said), ("FH001", "accounts: token 33 is stale; 34 was shown before"));
    assert_eq!(old.refusal(&raise(33)).0, "FH001");
    // A holder's transactions pass side by side, and a newer holder waits for them.
    new.value("BEGIN");
    new.value(&guard(34));
    beside.value(&guard(34));
    let raising = beside.run_blocked_by(&new, &raise(35));
    new.value("COMMIT");
    raising.value();
    assert_eq!(new.refusal(&guard(34)).0, "FH001");
}

#[test]
fn a_worker_may_call_what_it_needs_and_touch_nothing_else() {
    let (_test_store, calls, [user]) = with_sessions();
    user.value("SET ROLE fencehold_worker");
    user.value(&calls.acquire("k", 1, "A"));
    user.value(&calls.fence("k", 1));
    for forbidden in [
        &calls.revoke("k"),
        "UPDATE lease_key SET counter = 0",
        "DELETE FROM lease_hold",
        "SELECT hash FROM lease_hold",
        "SELECT note('default', 'k', '{}', 0)",
    ] {
        assert_eq!(user.refusal(forbidden).0, "42501", "{forbidden}");
    }
    user.value("SET ROLE fencehold_reader");
    assert_eq!(user.value(&calls.holder("k")), "A");
    assert_eq!(user.refusal(&calls.acquire("l", 2, "B")).0, "42501");
    user.value("SET ROLE fencehold_admin");
    user.value(&calls.revoke("k"));
}

/// The table of locks is the whole server's: one transaction must not use it up.
#[test]
fn one_transaction_has_a_fence_on_twenty_thousand_keys() {
    let (_test_store, calls, [user, other]) = with_sessions();
    user.value(
        "WITH key AS (
            INSERT INTO lease_key (namespace, key, counter, look_at_ms)
            SELECT 'default', 'k' || i, 1, 0 FROM generate_series(1, 20000) AS i RETURNING id)
         INSERT INTO lease_ending (key_id, token, hash, owner, how, at_ms) SELECT id, 1, '', 'A', 'expired', 0 FROM key",
    );
    user.value("BEGIN");
    let fenced = user.value("SELECT count(fence('k' || i, 1)) FROM generate_series(1, 20000) AS i");
    assert_eq!(fenced, "20000");
    let locks = format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {}", user.pid);
    assert_eq!(other.value(&locks), "1000");
    let (code, _) = other.refusal(&calls.acquire("k20000", 2, "B").replace("60000)", "100)"));
    assert_eq!(code, "55P03", "a key without its mark is as locked as any other");
    user.value("COMMIT");
    other.value(&calls.acquire("k20000", 2, "B"));
}

/// Between its deadline and the end of the transaction a fenced lease is held, for everybody who looks as for everybody who asks.
#[test]
fn a_lease_that_has_run_out_under_a_fence_is_shown_as_held() {
    let (test_store, calls, [user]) = with_sessions();
    let store = test_store.store();
    let a = store.take(lease_request("k", 1, "A"));
    user.value("BEGIN");
    user.value(&calls.fence("k", a.token.get()));
    test_store.pass(30_000);
    let shown = || block_on(store.get(&call(), key("k"))).unwrap().unwrap().holder;
    let all = ListLeasesRequest { limit: 10, ..ListLeasesRequest::default() };
    let listed = || block_on(store.list(&call(), all.clone())).unwrap().leases.len();
    assert_eq!(held_by(block_on(store.acquire(&call(), lease_request("k", 2, "B")))).0, "A");
    let holder = shown().expect("it is held");
    assert_eq!((holder.owner.as_str(), holder.remaining_ms), ("A", 0));
    assert_eq!(listed(), 1);
    user.value("COMMIT");
    assert_eq!(shown(), None);
    assert_eq!(listed(), 0);
}

/// The variants that answer go on with the transaction, and what they refuse is in the events once it commits.
#[test]
fn a_refusal_that_is_answered_is_recorded_with_the_transaction() {
    let (test_store, _, [user]) = with_sessions();
    let (store, schema) = (test_store.store(), test_store.schema);
    let a = store.take(lease_request("k", 1, "A"));
    let fence = |token: u64| format!("SELECT {schema}.try_fence('k', {token})");
    assert_eq!(user.value(&fence(1)), "t", "it is the holder's");
    test_store.pass(30_000);
    let b = store.take(lease_request("k", 2, "B"));
    let blocked = || {
        let request = ListEventsRequest { limit: 100, ..ListEventsRequest::default() };
        let events = block_on(store.list_events(&call(), request)).unwrap().events;
        let blocked = events.into_iter().filter_map(|event| match event.data {
            EventData::StaleWriteBlocked { token, current_token, action, outcome } => {
                Some((token, current_token, action, outcome))
            }
            _ => None,
        });
        blocked.collect::<Vec<_>>()
    };
    user.value("BEGIN");
    assert_eq!(user.value(&fence(1)), "f");
    assert_eq!(user.value("SELECT 1"), "1", "the transaction goes on");
    user.value("ROLLBACK");
    assert!(blocked().is_empty(), "what was rolled back has not happened");
    user.value("BEGIN");
    assert_eq!(user.value(&fence(1)), "f");
    user.value("COMMIT");
    let late = (a.token, b.token, BlockedAction::Write, Some(LeaseOutcome::Expired));
    assert_eq!(blocked(), [late]);
    // Of a live holder nothing is recorded.
    let report = |token| BlockedWrite { key: key("k"), token, action: BlockedAction::Write };
    let reported = |token| block_on(store.report_blocked_write(&call(), report(token))).unwrap().recorded;
    assert!(!reported(b.token));
    assert!(reported(a.token));
    assert_eq!(blocked(), [late, late]);
    // A program before schema 32 does not know the word.
    let read = format!(
        "SELECT (events_read).events::text FROM (SELECT {schema}.events_read('default', 0, NULL, 100, 0)) AS r"
    );
    let seen = user.value(&read);
    assert!(
        seen.contains(r#""attempted": "outcome""#) && !seen.contains(r#""attempted": "write""#),
        "{seen}"
    );
}

/// R41: what is given back because a contender asked for it is over for a fence, although it has yielded.
#[test]
fn a_lease_that_was_given_back_when_asked_to_yield_does_not_pass() {
    let (test_store, calls, [user]) = with_sessions();
    let (store, schema) = (test_store.store(), test_store.schema);
    let a = store.take(lease_request("k", 1, "A"));
    store.release_one(&a).unwrap();
    let yielded = format!("UPDATE {schema}.lease_ending SET how = 'yielded', ended_by = ");
    user.value(&format!("{yielded} NULL"));
    assert_eq!(user.refusal(&calls.fence("k", a.token.get())).0, "FH002");
    user.value(&format!("{yielded} 'urgent'"));
    user.value(&calls.fence("k", a.token.get()));
}
