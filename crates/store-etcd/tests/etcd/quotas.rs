//! Limits of a namespace while others act at the same moment, and what they cost; and how long `advance` closes a namespace.

use fencehold_contract::{
    AcquireLeaseRequest, CallContext, LeaseStore as _, Quota, QuotaRequest, QuotaView, StoreError,
};
use fencehold_store_etcd::EtcdRequest;
use fencehold_test_servers::calls::owner;
use fencehold_test_store::block_on;

use crate::call;
use crate::test_client::{TTL_MS, TestClient, people};

fn set(person: &TestClient, limits: Quota) -> Result<QuotaView, StoreError> {
    let request = QuotaRequest { quota: Some(limits), all_namespaces: false, by: Some(owner("ops")) };
    block_on(person.store.quota(&call(), request))
}

fn keys(keys: u64) -> Quota {
    Quota { max_keys: Some(keys), ..Quota::default() }
}

/// Two who counted at the same moment do not both get a new key where there is room for one.
#[test]
fn new_keys_that_come_at_the_same_time_stay_within_the_limit() {
    let [a, b] = people(["A", "B"]);
    set(&b, keys(2)).unwrap();
    a.take("one");
    let late = a.hold_up_acquire(a.ask("two"));
    b.take("three");
    a.gate.let_go();
    match late.join().unwrap() {
        Err(StoreError::LimitReached { message: what, limit: 2 }) => {
            assert!(what.starts_with("lease keys of namespace default (use the same keys again"), "{what}");
        }
        other => panic!("a third key: {other:?}"),
    }
    let used = block_on(b.store.quota(&call(), looking())).unwrap().usage;
    assert_eq!(used.key_count, 2);
}

fn looking() -> QuotaRequest {
    QuotaRequest { quota: None, all_namespaces: false, by: None }
}

/// A limit that is set while a grant is on its way counts for it.
#[test]
fn a_limit_counts_from_the_moment_at_which_it_is_set() {
    let [a, b] = people(["A", "B"]);
    for limits in [Quota { max_ttl_ms: Some(TTL_MS - 1), ..Quota::default() }, keys(0)] {
        let late = a.hold_up_acquire(a.ask("k"));
        set(&b, limits).unwrap();
        a.gate.let_go();
        match (limits.max_keys, late.join().unwrap()) {
            (None, Err(StoreError::BadInput(bad))) => assert_eq!(bad.field, "ttl", "{bad}"),
            (Some(_), Err(StoreError::LimitReached { limit: 0, .. })) => {}
            (_, other) => panic!("granted although {limits:?}: {other:?}"),
        }
        set(&b, Quota { max_ttl_ms: Some(TTL_MS), ..Quota::default() }).unwrap();
    }
}

/// Counting costs one request, for a key that is new, where their number is limited.
#[test]
fn only_a_new_key_is_counted_and_only_where_there_is_a_limit() {
    let [a, b] = people(["A", "B"]);
    set(&b, Quota { max_ttl_ms: Some(TTL_MS), ..Quota::default() }).unwrap();
    let usual = [EtcdRequest::Read, EtcdRequest::LeaseGrant, EtcdRequest::Write];
    let held = a.take("one");
    assert_eq!(a.gate.taken(), usual, "a new key where only the ttl is limited");
    a.release(&held).unwrap();
    set(&b, keys(2)).unwrap();
    a.gate.taken();
    a.take("one");
    assert_eq!(a.gate.taken(), usual, "a known key");
    a.take("two");
    let counted = [EtcdRequest::Read, EtcdRequest::Read, EtcdRequest::LeaseGrant, EtcdRequest::Write];
    assert_eq!(a.gate.taken(), counted, "a new key");
}

/// An answer that is lost costs a second try, and no limit of another caller.
#[test]
fn limits_are_set_although_an_answer_was_lost() {
    let [a, b] = people(["A", "B"]);
    set(&a, Quota { max_ttl_ms: Some(TTL_MS), ..Quota::default() }).unwrap();
    b.gate.lose_write(0);
    let view = set(&b, keys(7)).unwrap();
    assert!(b.gate.has_lost());
    assert_eq!(view.quota, Quota { max_keys: Some(7), max_ttl_ms: Some(TTL_MS), ..Quota::USUAL });
}

/// What only jobs have is refused with what can be set instead.
#[test]
fn limits_of_jobs_are_refused() {
    let [a] = people(["A"]);
    match set(&a, Quota { max_queues: Some(3), max_keys: Some(1), ..Quota::default() }) {
        Err(StoreError::Unsupported { message: what, .. }) => assert!(what.contains("--max-keys"), "{what}"),
        other => panic!("{other:?}"),
    }
    match set(&a, Quota { max_ttl_ms: Some(1_000), ..Quota::default() }) {
        Err(StoreError::BadInput(bad)) => assert!(bad.message.contains("2000 ms"), "{bad}"),
        other => panic!("below the shortest: {other:?}"),
    }
    assert_eq!(block_on(a.store.quota(&call(), looking())).unwrap().quota, Quota::USUAL);
}

/// A grant that comes while an advance is under way counts in its namespace.
#[test]
fn an_advance_counts_what_was_granted_until_it_closed_the_store() {
    let [a, b] = people(["A", "B"]);
    let long_ms = TTL_MS * 3;
    let elsewhere = CallContext::new("elsewhere".parse().unwrap());
    let long = |name| AcquireLeaseRequest { ttl_ms: long_ms, ..a.ask(name) };
    block_on(a.store.acquire(&elsewhere, long("k"))).unwrap();
    a.take("k");
    let advancing = b.hold_up(EtcdRequest::Write, |store| block_on(store.advance(&call(), owner("P"), 10)));
    a.take_with(long("late"));
    b.gate.let_go();
    let advanced = advancing.join().unwrap().unwrap();
    let closed = advanced
        .namespaces
        .iter()
        .map(|closed| (closed.namespace.as_str(), closed.closed_for_ms));
    let closed: Vec<_> = closed.collect();
    assert_eq!(closed, [("default", long_ms), ("elsewhere", long_ms)]);
}

/// Where namespaces cannot be closed each for itself, all stay closed for the longest ttl of any.
#[test]
fn an_advance_that_breaks_off_leaves_all_namespaces_closed() {
    let [a, b] = people(["A", "B"]);
    let elsewhere = CallContext::new("elsewhere".parse().unwrap());
    let long = AcquireLeaseRequest { ttl_ms: TTL_MS * 3, ..a.ask("k") };
    block_on(a.store.acquire(&elsewhere, long)).unwrap();
    a.take("k");
    // A lease for the store, the store itself, two for the namespaces, one more for the store, and the namespaces.
    b.gate.lose_write(5);
    let advanced = block_on(b.store.advance(&call(), "P".parse().unwrap(), 10)).unwrap();
    assert!(b.gate.has_lost());
    assert_eq!((advanced.closed_for_ms, advanced.namespaces), (TTL_MS * 3, Vec::new()));
    for call in [call(), elsewhere] {
        let refused = block_on(a.store.acquire(&call, a.ask("k")));
        assert!(matches!(refused, Err(StoreError::Unavailable { .. })), "{refused:?}");
    }
}
