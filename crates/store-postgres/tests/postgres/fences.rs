//! Fences in users' own transactions.

use std::sync::Arc;

use fencehold_contract::{
    AcquireLeaseRequest, CallContext, HoldRef, LeaseStore, RevokeLeasesRequest, RevokeTarget, StoreError,
};
use fencehold_core::{Key, Namespace, Owner, Reason, Refusal};
use fencehold_test_store::{TestStore as _, block_on};

use crate::session::{Calls, Session, StatementResult};
use crate::test_store::PostgresTestStore;

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

fn key(name: &str) -> Key {
    Key::new(name).unwrap()
}

fn request(name: &str, hold: u8, owner: &str) -> AcquireLeaseRequest {
    let hold = fencehold_core::HoldId::from_random([hold; 16]);
    AcquireLeaseRequest::new(key(name), hold, Owner::new(owner).unwrap(), 30_000)
}

pub(crate) fn take(store: &Arc<dyn LeaseStore>, name: &str, hold: u8, owner: &str) -> HoldRef {
    let request = request(name, hold, owner);
    let acquired = block_on(store.acquire(&call(), request.clone())).unwrap();
    HoldRef { key: key(name), hold_id: request.hold_id, token: acquired.grant.token }
}

fn refused(said: StatementResult) -> (String, String) {
    said.expect_err("refused")
}

#[test]
fn only_the_newest_token_passes_and_each_refusal_has_its_own_sqlstate() {
    let test_store = PostgresTestStore::new();
    let (store, calls, user) = (test_store.store(), Calls(test_store.schema), Session::new(&test_store));
    let a = take(&store, "k", 1, "A");
    user.value(&calls.fence("k", a.token.get()));
    // Expired, and not taken since: it passes, noted or not.
    test_store.pass(30_000);
    user.value(&calls.fence("k", a.token.get()));
    user.value(&calls.sweep());
    user.value(&calls.fence("k", a.token.get()));
    let b = take(&store, "k", 2, "B");
    let (code, said) = refused(user.run(&calls.fence("k", a.token.get())));
    assert_eq!((code.as_str(), said.as_str()), ("FH001", "k: token 1 is stale; the newest is 2"));
    user.value(&calls.fence("k", b.token.get()));
    block_on(store.release(&call(), vec![b.clone()])).unwrap()[0].as_ref().unwrap();
    let (code, said) = refused(user.run(&calls.fence("k", b.token.get())));
    assert_eq!(code, "FH002");
    assert_eq!(said, "k: the lease under token 2 has ended: it was released");
    let c = take(&store, "k", 3, "C");
    let (by, reason) = (Owner::new("P").unwrap(), Reason::new("stuck").unwrap());
    let which = RevokeTarget::Key { key: key("k"), only_token: None };
    block_on(store.revoke(&call(), RevokeLeasesRequest { target: which, by, reason })).unwrap();
    assert_eq!(refused(user.run(&calls.fence("k", c.token.get()))).0, "FH001", "force consumed a token");
    assert_eq!(refused(user.run(&calls.fence("k", 99))).0, "FH003");
    assert_eq!(refused(user.run(&calls.fence("never-held", 1))).0, "FH003");
}

/// R41.
#[test]
fn while_a_fenced_transaction_is_open_its_holder_renews_and_nobody_else_is_granted_the_key() {
    let test_store = PostgresTestStore::new();
    let (store, calls, user) = (test_store.store(), Calls(test_store.schema), Session::new(&test_store));
    let a = take(&store, "k", 1, "A");
    take(&store, "other", 2, "A");
    user.value("BEGIN");
    user.value(&calls.fence("k", a.token.get()));
    for _ in 0..9 {
        test_store.pass(10_000);
        let renewed = block_on(store.renew(&call(), vec![a.clone()])).unwrap();
        assert_eq!(renewed.results[0].as_ref().unwrap().remaining_ms, 30_000, "its own renewals go on");
    }
    let held = |answer: Result<_, StoreError>| match answer {
        Err(StoreError::Refused { refusal: Refusal::Held { owner, .. }, .. }) => owner.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(held(block_on(store.acquire(&call(), request("k", 3, "B"))).map(drop)), "A");
    // Also when its deadline has passed.
    test_store.pass(40_000);
    assert_eq!(held(block_on(store.acquire(&call(), request("k", 4, "B"))).map(drop)), "A");
    // Another of several keys can be had all the same.
    let any = AcquireLeaseRequest { any_of: vec![key("k"), key("free")], ..request("k", 5, "B") };
    assert_eq!(block_on(store.acquire(&call(), any)).unwrap().key.as_str(), "free");
    // Force waits within its time, and then says for whom.
    let (by, reason) = (Owner::new("P").unwrap(), Reason::new("stuck").unwrap());
    let which = RevokeTarget::Key { key: key("k"), only_token: None };
    let impatient = call().with_timeout_ms(400);
    match block_on(store.revoke(&impatient, RevokeLeasesRequest { target: which, by, reason })) {
        Err(StoreError::Unavailable { message: why }) => {
            assert!(why.contains(&format!("backend {}", user.pid)) && why.contains("k has a fence"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    user.value("CREATE TEMPORARY TABLE written (what text); INSERT INTO written VALUES ('business')");
    user.value("COMMIT");
    assert_eq!(user.value("SELECT what FROM written"), "business");
    assert!(block_on(store.acquire(&call(), request("k", 6, "B"))).unwrap().grant.token > a.token);
}

#[test]
fn a_fence_waits_for_a_grant_under_way_and_then_refuses() {
    let test_store = PostgresTestStore::new();
    let (calls, a, b) = (Calls(test_store.schema), Session::new(&test_store), Session::new(&test_store));
    a.value(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    b.value("BEGIN");
    b.value(&calls.acquire("k", 2, "B"));
    let fencing = a.run_blocked_by(&b, &calls.fence("k", 1));
    b.value("COMMIT");
    assert_eq!(refused(fencing.end().1).0, "FH001");
}

#[test]
fn a_grant_waits_for_a_fence_under_way() {
    let test_store = PostgresTestStore::new();
    let (calls, a, b) = (Calls(test_store.schema), Session::new(&test_store), Session::new(&test_store));
    a.value(&calls.acquire("k", 1, "A"));
    test_store.pass(30_000);
    a.value("BEGIN");
    a.value(&calls.fence("k", 1));
    let taking = b.run_blocked_by(&a, &calls.acquire("k", 2, "B"));
    a.value("COMMIT");
    taking.end().1.unwrap();
    assert_eq!(a.value(&calls.holder("k")), "B");
}

#[test]
fn an_abandoned_fence_ends_by_itself_and_never_later_than_what_is_in_force() {
    let test_store = PostgresTestStore::new();
    let (calls, user) = (Calls(test_store.schema), Session::new(&test_store));
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
    let other = Session::new(&test_store);
    other.value(&calls.acquire("k", 2, "B"));
    assert_eq!(other.value(&calls.holder("k")), "B");
}

/// R18.
#[test]
fn a_raised_mark_refuses_an_older_token_before_anything_was_written() {
    let test_store = PostgresTestStore::new();
    let schema = test_store.schema;
    let (old, new) = (Session::new(&test_store), Session::new(&test_store));
    let raise = |token: u64| format!("SELECT {schema}.raise_mark('accounts', {token})");
    let guard = |token: u64| format!("SELECT {schema}.fence_resource('accounts', {token})");
    old.value(&guard(33));
    new.value(&raise(34));
    assert_eq!(
        refused(old.run(&guard(33))),
        ("FH001".to_owned(), "accounts: token 33 is stale; 34 was shown before".to_owned())
    );
    assert_eq!(refused(old.run(&raise(33))).0, "FH001");
    // A holder's transactions pass side by side, and a newer holder waits for them.
    let beside = Session::new(&test_store);
    new.value("BEGIN");
    new.value(&guard(34));
    beside.value(&guard(34));
    let raising = beside.run_blocked_by(&new, &raise(35));
    new.value("COMMIT");
    raising.end().1.unwrap();
    assert_eq!(refused(new.run(&guard(34))).0, "FH001");
}

#[test]
fn a_worker_may_call_what_it_needs_and_touch_nothing_else() {
    let test_store = PostgresTestStore::new();
    let (schema, calls, user) = (test_store.schema, Calls(test_store.schema), Session::new(&test_store));
    user.value("SET ROLE fencehold_worker");
    user.value(&calls.acquire("k", 1, "A"));
    user.value(&calls.fence("k", 1));
    for forbidden in [
        calls.revoke("k"),
        format!("UPDATE {schema}.lease_key SET counter = 0"),
        format!("DELETE FROM {schema}.lease_hold"),
        format!("SELECT hash FROM {schema}.lease_hold"),
        format!("SELECT {schema}.note('default', 'k', '{{}}', 0)"),
    ] {
        assert_eq!(refused(user.run(&forbidden)).0, "42501", "{forbidden}");
    }
    user.value("SET ROLE fencehold_reader");
    assert_eq!(user.value(&calls.holder("k")), "A");
    assert_eq!(refused(user.run(&calls.acquire("l", 2, "B"))).0, "42501");
    user.value("SET ROLE fencehold_admin");
    user.value(&calls.revoke("k"));
}

/// The table of locks is the whole server's: one transaction must not use it up.
#[test]
fn one_transaction_has_a_fence_on_twenty_thousand_keys() {
    let test_store = PostgresTestStore::new();
    let (schema, calls) = (test_store.schema, Calls(test_store.schema));
    let (user, other) = (Session::new(&test_store), Session::new(&test_store));
    user.value(&format!(
        "WITH key AS (
            INSERT INTO {schema}.lease_key (namespace, key, counter, look_at_ms)
            SELECT 'default', 'k' || i, 1, 0 FROM generate_series(1, 20000) AS i RETURNING id)
         INSERT INTO {schema}.lease_ending (key_id, token, hash, owner, how, at_ms) SELECT id, 1, '', 'A', 'expired', 0 FROM key"
    ));
    user.value("BEGIN");
    let fenced =
        user.value(&format!("SELECT count({schema}.fence('k' || i, 1)) FROM generate_series(1, 20000) AS i"));
    assert_eq!(fenced, "20000");
    let locks = format!("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = {}", user.pid);
    assert_eq!(other.value(&locks), "1000");
    let taken = other.run(&calls.acquire("k20000", 2, "B").replace("60000)", "100)"));
    assert_eq!(refused(taken).0, "55P03", "a key without its mark is as locked as any other");
    user.value("COMMIT");
    other.value(&calls.acquire("k20000", 2, "B"));
}

/// Between its deadline and the end of the transaction a fenced lease is held, for everybody who looks as for everybody who asks.
#[test]
fn a_lease_that_has_run_out_under_a_fence_is_shown_as_held() {
    let test_store = PostgresTestStore::new();
    let (store, calls, user) = (test_store.store(), Calls(test_store.schema), Session::new(&test_store));
    let a = take(&store, "k", 1, "A");
    user.value("BEGIN");
    user.value(&calls.fence("k", a.token.get()));
    test_store.pass(30_000);
    let shown = || block_on(store.get(&call(), key("k"))).unwrap().unwrap().holder;
    let listed = || {
        block_on(
            store.list(&call(), fencehold_contract::ListLeasesRequest { limit: 10, ..Default::default() }),
        )
        .unwrap()
        .leases
        .len()
    };
    match block_on(store.acquire(&call(), request("k", 2, "B"))) {
        Err(StoreError::Refused { refusal: Refusal::Held { owner, .. }, .. }) => {
            assert_eq!(owner.as_str(), "A");
        }
        other => panic!("{other:?}"),
    }
    let holder = shown().expect("it is held");
    assert_eq!((holder.owner.as_str(), holder.remaining_ms), ("A", 0));
    assert_eq!(listed(), 1);
    user.value("COMMIT");
    assert_eq!(shown(), None);
    assert_eq!(listed(), 0);
}
