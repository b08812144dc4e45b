//! Namespaces are separate worlds.

use super::prelude::*;

/// The same key in two namespaces is two keys.
pub(super) fn the_same_key_in_two_namespaces_is_two_keys(g: &Fixture) {
    let (one, two) = (g.in_namespace("one"), g.in_namespace("two"));
    let a = one.take("k", "A");
    assert_eq!(two.view("k"), None);
    let b = two.take("k", "B");
    assert_held_by(one.try_take("k", "C"), &a);
    assert_held_by(two.try_take("k", "C"), &b);
    one.release(&a).expect("a live lease");
    assert_eq!(two.holder_name("k").as_deref(), Some("B"));
    let list = |world: &Fixture| {
        world
            .list(ListLeasesRequest { limit: 10, ..ListLeasesRequest::default() })
            .expect("a page")
    };
    assert_eq!((list(&one).leases.len(), list(&two).leases.len()), (0, 1));
}

/// R34: a right hold id and token under the wrong namespace are refused, and touch nothing.
pub(super) fn a_hold_of_another_namespace_is_refused(g: &Fixture) {
    let (one, two) = (g.in_namespace("one"), g.in_namespace("two"));
    let a = one.take("k", "A");
    assert!(two.renew(&a).is_err() && two.release(&a).is_err(), "where the key was never held");
    let b = two.take("k", "B");
    assert!(two.renew(&a).is_err() && two.release(&a).is_err(), "where another holder has it");
    assert_eq!(two.revoke(RevokeTarget::Owner(a.request.owner.clone())), Ok(vec![]));
    one.renew(&a).expect("untouched");
    two.renew(&b).expect("untouched");
}

/// A hold id that is used in two namespaces is two hold ids: neither a lease nor a place in line is shared.
pub(super) fn a_hold_id_means_nothing_in_another_namespace(g: &Fixture) {
    let (one, two) = (g.in_namespace("one"), g.in_namespace("two"));
    let a = one.take("k", "A");
    let same = AcquireLeaseRequest { hold_id_age_ms: 1, ..a.request.clone() };
    let b = two.take_with(same);
    assert!(!b.resumed);
    one.release(&a).expect("a live lease");
    two.renew(&b).expect("untouched");
    if g.capabilities().supports_waiting {
        let holder = one.take("queue", "A");
        let request = one.ask_to_wait("queue", "B");
        let waiting = one.stand_in_line(request.clone());
        two.take_with(AcquireLeaseRequest { wait_ms: 0, hold_id_age_ms: 1, ..request });
        assert_eq!(one.waiters("queue"), 1, "it stands where it stood");
        one.release(&holder).expect("a live lease");
        waiting.answer().expect("a key that came free");
    }
}

/// No namespace shows another's events.
pub(super) fn events_of_another_namespace_are_not_told(g: &Fixture) {
    let (one, two) = (g.in_namespace("one"), g.in_namespace("two"));
    one.take("mine", "A");
    two.take("theirs", "B");
    one.take("mine-too", "A");
    let keys = |world: &Fixture| {
        world
            .events()
            .into_iter()
            .map(|event| event.key.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(keys(&one), ["mine", "mine-too"]);
    assert_eq!(keys(&two), ["theirs"]);
    assert!(one.events().iter().all(|event| event.namespace.as_str() == "one"));
}
