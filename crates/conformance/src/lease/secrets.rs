//! A hold id is a secret: it is in nothing that a store gives back or shows.

use super::prelude::*;

/// P5: neither the hold id nor its hash is in anything that can be printed.
pub(super) fn no_hold_id_is_in_anything_that_is_given_back(g: &Fixture) {
    let [hold_id, other_id] = SECRETS.map(HoldId::from_random);
    let request = AcquireLeaseRequest { hold_id, ..g.ask("k", "A") };
    let held = g.take_with(request.clone());
    let stale = g.take_with(AcquireLeaseRequest { hold_id: other_id, ..g.ask("stale", "A") });
    g.release(&stale).expect("a live lease");
    let page = ListLeasesRequest { limit: 10, include_free: true, ..ListLeasesRequest::default() };
    let mut shown = vec![
        format!("{request:?}"),
        format!("{:?}", held.as_ref()),
        format!("{:?}", g.acquire(AcquireLeaseRequest { hold_id_age_ms: 1, ..request.clone() })),
        format!("{:?}", g.acquire(g.ask("k", "B"))),
        format!("{:?}", g.acquire(AcquireLeaseRequest { ttl_ms: 0, ..request.clone() })),
        format!("{:?}", g.renew_refs(vec![held.as_ref(), stale.as_ref()])),
        format!("{:?}", g.release_refs(vec![stale.as_ref()])),
        format!("{:?}", g.view("k")),
        format!("{:?}", g.list(page)),
        format!("{:?}", g.status()),
        format!("{:?}", g.revoke(RevokeTarget::Key { key: key("k"), only_token: None })),
        format!("{:?}", g.acquire(AcquireLeaseRequest { hold_id_age_ms: 1, ..request })),
        format!("{:?}", g.view("k")),
        format!("{:?}", g.test_store.store()),
        format!("{:?}", g.test_store.other()),
    ];
    if g.has(TestCapability::TellsEvents) {
        let page = ListEventsRequest { limit: 100, ..ListEventsRequest::default() };
        shown.push(format!("{:?}", g.events_page(page)));
    }
    assert_no_secret_in(&shown);
}
