//! A hold id is a secret: it is in nothing that a store gives back or shows.

use fencehold_contract::{AcquireLeaseRequest, ListEventsRequest, ListLeasesRequest, RevokeTarget};
use fencehold_core::HoldId;
use fencehold_test_store::TestCapability;

use super::super::CaseResult;
use super::super::fixture::{Fixture, key};

/// P5: neither the hold id nor its hash is in anything that can be printed.
pub(super) fn no_hold_id_is_in_anything_that_is_given_back(g: &Fixture) -> CaseResult {
    let request = AcquireLeaseRequest { hold_id: HoldId::from_random([0xa7; 16]), ..g.ask("k", "A") };
    let held = g.take_with(request.clone());
    let stale =
        g.take_with(AcquireLeaseRequest { hold_id: HoldId::from_random([0xb9; 16]), ..g.ask("stale", "A") });
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
        shown.push(format!(
            "{:?}",
            g.events_page(ListEventsRequest { limit: 100, ..ListEventsRequest::default() })
        ));
    }
    let forms = |bytes: &[u8; 16]| {
        let hex: Vec<String> = bytes[..4].iter().map(|byte| format!("{byte:02x}")).collect();
        let list: Vec<String> = bytes[..4].iter().map(u8::to_string).collect();
        [hex.concat(), list.join(", ")]
    };
    for secret in [[0xa7; 16], [0xb9; 16]] {
        let hash = HoldId::from_random(secret).hash();
        for form in forms(&secret).into_iter().chain(forms(hash.as_bytes())) {
            for text in &shown {
                assert!(!text.to_lowercase().contains(&form), "{form} is in {text}");
            }
        }
    }
    Ok(())
}
