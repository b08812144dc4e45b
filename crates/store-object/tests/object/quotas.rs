//! Limits of a namespace: what they cost, when they count, and who may exceed them.

use fencehold_contract::{LeaseStore as _, Quota, QuotaRequest, QuotaView, StoreError};
use fencehold_store_object::ResponseFate;
use fencehold_test_servers::calls::owner;
use fencehold_test_store::block_on;

use crate::TTL_MS;
use crate::fixture::{Fixture, TestHolder};
use crate::servers::{CLOUDS, ObjectServer};

fn limits(holder: &TestHolder, set: impl Into<Option<Quota>>) -> Result<QuotaView, StoreError> {
    let request = QuotaRequest { quota: set.into(), all_namespaces: false, by: Some(owner("ops")) };
    block_on(holder.store.quota(&holder.call, request))
}

fn keys(keys: u64) -> Quota {
    Quota { max_keys: Some(keys), ..Quota::default() }
}

fn ttl(ttl_ms: u64) -> Quota {
    Quota { max_ttl_ms: Some(ttl_ms), ..Quota::default() }
}

fn reads(holder: &TestHolder) -> usize {
    holder.gate.take().iter().filter(|request| request.method == "GET").count()
}

/// Keys are listed for a key that is new, where their number is limited.
#[test]
fn only_a_new_key_is_counted_and_only_where_there_is_a_limit() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        limits(&b, ttl(TTL_MS)).unwrap();
        let held = a.take("one");
        assert_eq!(reads(&a), 3, "{server:?}: a new key where only the ttl is limited");
        a.release(&held).unwrap();
        limits(&b, keys(2)).unwrap();
        fixture.clock.advance_ms(60_000);
        a.take("one");
        assert_eq!(reads(&a), 2, "{server:?}: a known key, and limits");
        let held = a.take("two");
        assert_eq!(reads(&a), 3, "{server:?}: a new key");
        a.release(&held).unwrap();
        a.take("two");
        assert_eq!(reads(&a), 1, "{server:?}: it is known now");
        match a.acquire(a.ask("three")) {
            Err(StoreError::LimitReached { message: what, limit: 2 }) => {
                let named = "lease keys of namespace default (use the same keys again";
                assert!(what.starts_with(named), "{server:?}: {what}");
            }
            other => panic!("{server:?}: a third key: {other:?}"),
        }
        assert_eq!(limits(&b, None).unwrap().usage.key_count, 2, "{server:?}");
    }
}

/// A handle goes by limits that it read within the last minute, but refuses nothing by them.
#[test]
fn a_limit_counts_within_a_minute_and_one_that_is_lifted_at_once() {
    let fixture = Fixture::on(ObjectServer::Moto);
    let (a, b) = (fixture.holder("A"), fixture.holder("B"));
    let held = a.take("k");
    a.release(&held).unwrap();
    limits(&b, ttl(TTL_MS - 1)).unwrap();
    let held = a.take("k");
    a.release(&held).unwrap();
    fixture.clock.advance_ms(60_000);
    match a.acquire(a.ask("k")) {
        Err(StoreError::BadInput(bad)) => assert!(bad.message.contains("29999 ms"), "{bad}"),
        other => panic!("above the longest: {other:?}"),
    }
    limits(&b, ttl(TTL_MS)).unwrap();
    a.take("k");
}

/// Two who counted at the same moment both get their key: one more than the limit, and the next is refused.
#[test]
fn callers_that_come_at_the_same_time_exceed_a_limit_by_one_each() {
    let fixture = Fixture::on(ObjectServer::Moto);
    let (a, b) = (fixture.holder("A"), fixture.holder("B"));
    limits(&b, keys(1)).unwrap();
    a.held_up(|a| a.take("one"), || b.take("two"));
    for holder in [&a, &b] {
        let refused = holder.acquire(holder.ask("three"));
        assert!(matches!(refused, Err(StoreError::LimitReached { limit: 1, .. })), "{refused:?}");
    }
}

/// An answer that is lost costs a second try, and no limit of another caller.
#[test]
fn limits_are_set_although_an_answer_was_lost() {
    for server in CLOUDS {
        let fixture = Fixture::on(server);
        let (a, b) = (fixture.holder("A"), fixture.holder("B"));
        limits(&a, ttl(TTL_MS)).unwrap();
        b.gate.lose_write(0, ResponseFate::Unavailable);
        let view = limits(&b, keys(7)).unwrap();
        assert!(b.gate.is_done(), "{server:?}");
        let set = Quota { max_keys: Some(7), max_ttl_ms: Some(TTL_MS), ..Quota::USUAL };
        assert_eq!(view.quota, set, "{server:?}");
    }
}

/// What only jobs have is refused with what can be set instead.
#[test]
fn limits_of_jobs_are_refused() {
    let mut fixture = Fixture::on(ObjectServer::Moto);
    fixture.place.options.ttl_ms_min = 15_000;
    let a = fixture.holder("A");
    match limits(&a, Some(Quota { max_jobs: Some(3), max_keys: Some(1), ..Quota::default() })) {
        Err(StoreError::Unsupported { message: what, .. }) => assert!(what.contains("--max-keys"), "{what}"),
        other => panic!("{other:?}"),
    }
    match limits(&a, ttl(14_999)) {
        Err(StoreError::BadInput(bad)) => assert!(bad.message.contains("15000 ms"), "{bad}"),
        other => panic!("below the shortest: {other:?}"),
    }
    assert_eq!(limits(&a, None).unwrap().quota, Quota::USUAL);
}
