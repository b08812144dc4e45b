//! What one namespace may have: more is refused, with the limit and the namespace named, and no other namespace notices.

use super::prelude::*;

/// A namespace has as many keys as it may; what it has goes on.
pub(super) fn a_namespace_has_no_more_keys_than_its_limit(g: &Fixture) {
    let first = g.take("one", "A");
    let view = g.set_limits(Quota { max_keys: Some(2), ..Quota::default() });
    assert_eq!((view.quota.max_keys, view.usage.key_count), (Some(2), 1));
    g.take("two", "A");
    g.restart_if_it_can();
    match g.acquire(g.ask("three", "A")) {
        Err(StoreError::LimitReached { message: what, limit: 2 }) => {
            let named = format!("lease keys of namespace {}", g.call.namespace);
            assert!(what.starts_with(&named) && what.contains("max-keys"), "{what}");
        }
        other => panic!("a third key: {other:?}"),
    }
    assert!(g.view("three").is_none(), "nothing is left of it");
    g.renew(&first).expect("what it has goes on");
    g.release(&first).expect("a live lease");
    g.take("one", "B");
    g.in_namespace("elsewhere").take("three", "A");
    g.set_limits(Quota { max_keys: Some(3), ..Quota::default() });
    g.take("three", "A");
}

/// The longest ttl of a namespace is named to one who asks for more.
pub(super) fn a_ttl_above_the_longest_of_its_namespace_is_refused(g: &Fixture) {
    let ttl_ms = g.ttl_ms();
    let long = g.take_with(AcquireLeaseRequest { ttl_ms: ttl_ms * 3, ..g.ask("before", "A") });
    g.set_limits(Quota { max_ttl_ms: Some(ttl_ms), ..Quota::default() });
    g.take("k", "A");
    match g.acquire(AcquireLeaseRequest { ttl_ms: ttl_ms + 1, ..g.ask("l", "A") }) {
        Err(StoreError::BadInput(bad)) => {
            let named = format!("the longest in namespace {} is {ttl_ms} ms", g.call.namespace);
            assert!(bad.field == "ttl" && bad.message.contains(&named), "{bad}");
        }
        other => panic!("a ttl above the longest: {other:?}"),
    }
    g.renew(&long).expect("what was granted before goes on");
    let elsewhere = g.in_namespace("elsewhere");
    elsewhere.take_with(AcquireLeaseRequest { ttl_ms: ttl_ms + 1, ..elsewhere.ask("l", "A") });
}

/// Limits are set for every namespace, and for one.
pub(super) fn a_namespaces_own_limit_goes_before_that_of_every_namespace(g: &Fixture) {
    let elsewhere = g.in_namespace("elsewhere");
    let keys = |keys| Some(Quota { max_keys: Some(keys), ..Quota::default() });
    g.look_at_limits(keys(1), true);
    elsewhere.look_at_limits(keys(2), false);
    let in_force = |world: &Fixture| world.look_at_limits(None, false).quota;
    assert_eq!(in_force(g), Quota { max_keys: Some(1), ..Quota::USUAL });
    assert_eq!(in_force(&elsewhere), Quota { max_keys: Some(2), ..Quota::USUAL });
    g.take("one", "A");
    assert!(matches!(g.acquire(g.ask("two", "A")), Err(StoreError::LimitReached { limit: 1, .. })));
    elsewhere.take("one", "A");
    elsewhere.take("two", "A");
}
