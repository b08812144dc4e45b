//! What storage answers instead of doing what was asked: each error says what happened, where, and what to do, after a
//! few requests.

use std::sync::Arc;

use fencehold_contract::clock::{ManualClock, SystemClock};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseStore as _, ListLeasesRequest, Quota,
    QuotaRequest, StoreError,
};
use fencehold_core::{Namespace, Token};
use fencehold_store_object::{Cloud, NonceSeed, ObjectStore};
use fencehold_test_servers::calls::{hold_id, key, owner};
use fencehold_test_store::block_on;

use crate::fixture::{Fixture, TestHolder, open_on};
use crate::servers::{CLOUDS, ObjectServer, on_every_cloud};

const MISSING: &str = "no-such-bucket";

/// How long a call may take whose first answer is its last: as long as a slow machine needs.
const PATIENT_MS: u64 = 60_000;

/// Every call of the contract, and what it answers.
fn every_call(holder: &TestHolder, timeout_ms: u64) -> Vec<(&'static str, Result<(), StoreError>)> {
    let store = &holder.store;
    let call = holder.call.clone().with_timeout_ms(timeout_ms);
    let shown = HoldRef { key: key("k"), hold_id: hold_id(7), token: Token::new(3) };
    let all = ListLeasesRequest { limit: 10, ..ListLeasesRequest::default() };
    let limits = |keys: Option<u64>| {
        let set = keys.map(|keys| Quota { max_keys: Some(keys), ..Quota::default() });
        QuotaRequest { quota: set, all_namespaces: false, by: Some(owner("ops")) }
    };
    vec![
        ("acquire", block_on(store.acquire(&call, holder.ask("k"))).map(drop)),
        ("renew", block_on(store.renew(&call, vec![shown.clone()])).map(drop)),
        ("release", block_on(store.release(&call, vec![shown])).map(drop)),
        ("revoke", holder.revoke("k").map(drop)),
        ("get", block_on(store.get(&call, key("k"))).map(drop)),
        ("list", block_on(store.list(&call, all)).map(drop)),
        ("status", block_on(store.status(&call)).map(drop)),
        ("advance", block_on(store.advance(&call, owner("ops"), 1)).map(drop)),
        ("limits", block_on(store.quota(&call, limits(None))).map(drop)),
        ("set limits", block_on(store.quota(&call, limits(Some(1)))).map(drop)),
    ]
}

/// A bucket that is not there is named by every call, after a few requests; none takes it for an empty one.
#[test]
fn every_call_says_that_the_bucket_is_missing() {
    on_every_cloud(|server| {
        let mut fixture = Fixture::on(server);
        fixture.place.bucket = MISSING.to_owned();
        let a = fixture.holder("A");
        for (what, answer) in every_call(&a, PATIENT_MS) {
            let Err(StoreError::Unusable { store: place, message: why }) = &answer else {
                panic!("{server:?}, {what}: {answer:?}");
            };
            assert!(place.contains(MISSING), "{server:?}, {what}: {place}");
            assert!(
                why.contains(&format!("r {MISSING} ")) || why.contains(&format!("t {MISSING} ")),
                "{why}"
            );
            assert!(why.contains("create it"), "{server:?}, {what}: {why}");
        }
        let sent = a.gate.take().len();
        assert!(sent <= 4 * 10, "{server:?}: {sent} requests for ten calls");
    });
}

/// Probing says so too, and does not take it for storage that breaks its conditions.
#[test]
fn probing_says_that_the_bucket_is_missing() {
    for server in CLOUDS {
        let mut place = server.place();
        place.bucket = MISSING.to_owned();
        let opened = ObjectStore::open(&place, Arc::new(ManualClock::new()), NonceSeed::draw().unwrap());
        let text = opened.map(drop).unwrap_err().to_string();
        assert!(text.contains(MISSING) && text.contains("create it"), "{server:?}: {text}");
        assert!(!text.contains("conditions"), "{server:?}: {text}");
    }
}

fn try_within(holder: &TestHolder, timeout_ms: u64) -> Result<AcquiredLease, StoreError> {
    let call = holder.call.clone().with_timeout_ms(timeout_ms);
    block_on(holder.store.acquire(&call, holder.ask("k")))
}

/// Storage that answers every write with an error: the status is shown, with the key and the place, and not that no answer
/// came. Who was not recognised has certainly not written; of the others it is not known.
#[test]
fn an_error_that_answers_every_write_is_told_with_its_status() {
    on_every_cloud(|server| {
        for status in [401, 403, 408, 429, 503] {
            let fixture = Fixture::on(server);
            let a = fixture.holder("A");
            a.gate.answer(None, Some(status));
            // Of the others the call asks again for as long as it may.
            let timeout_ms = if matches!(status, 401 | 403) { PATIENT_MS } else { 5_000 };
            let refused = try_within(&a, timeout_ms).unwrap_err();
            let text = refused.to_string();
            let context = format!("{server:?}, {status}: {text}");
            match status {
                401 | 403 => assert!(matches!(refused, StoreError::Unusable { .. }), "{context}"),
                _ => assert!(matches!(refused, StoreError::OutcomeUnknown { .. }), "{context}"),
            }
            assert!(text.contains(&format!("HTTP {status}")), "{context}");
            assert!(text.contains(&fixture.place.to_string()), "{context}");
            assert!(!text.contains("no answer came"), "{context}");
            assert_eq!(text.contains("credentials"), matches!(status, 401 | 403), "{context}");
            let sent = a.gate.take().len();
            assert!(sent <= 64, "{context}: {sent} requests");
            // Nothing of it is left behind.
            a.gate.answer(None, None);
            assert_eq!(a.take("other").token, Token::new(1), "{context}");
        }
    });
}

/// The same for reads; there, nothing can have been done.
#[test]
fn an_error_that_answers_every_read_is_told_with_its_status() {
    on_every_cloud(|server| {
        for status in [401, 403, 408, 429, 503] {
            let fixture = Fixture::on(server);
            let a = fixture.holder("A");
            a.gate.answer(Some(status), None);
            // These are answered within this process.
            for (what, answer) in every_call(&a, 2_000) {
                let error = answer.unwrap_err();
                let context = format!("{server:?}, {status}, {what}: {error}");
                match status {
                    401 | 403 => assert!(matches!(error, StoreError::Unusable { .. }), "{context}"),
                    _ => assert!(matches!(error, StoreError::Unavailable { .. }), "{context}"),
                }
                assert!(error.to_string().contains(&format!("HTTP {status}")), "{context}");
            }
        }
    });
}

/// An advance whose floor cannot be written says why, and does not blame other advances.
#[test]
fn an_advance_that_cannot_write_says_why() {
    let fixture = Fixture::on(ObjectServer::Gcs);
    let a = fixture.holder("A");
    a.gate.answer(None, Some(429));
    let call = a.call.clone().with_timeout_ms(5_000);
    let answer = block_on(a.store.advance(&call, owner("ops"), 1));
    let Err(StoreError::OutcomeUnknown { message: why }) = &answer else { panic!("{answer:?}") };
    assert!(why.contains("HTTP 429"), "{why}");
    let sent = a.gate.take().len();
    assert!(sent <= 64, "{sent} requests");
}

/// Who waits for a key that `store advance` has closed gets it when it opens, in the same call: not at the next try of a
/// client that has been refused again and again, and pauses for longer each time.
#[test]
fn who_waits_is_let_in_as_soon_as_an_advance_is_over() {
    // A request may take a part of it.
    const TTL_MS: u64 = 2_000;
    on_every_cloud(|server| {
        let mut place = server.place();
        (place.options.ttl_ms_min, place.options.min_write_interval_ms) = (TTL_MS, 0);
        let open = || open_on(Cloud::open(&place).unwrap(), &place, Arc::new(SystemClock));
        let (holder, waiter) = (open(), open());
        let call = CallContext::new(Namespace::default());
        let ask = |key: &str| AcquireLeaseRequest { ttl_ms: TTL_MS, wait_ms: 60_000, ..crate::ask(key, "A") };
        let first = block_on(holder.acquire(&call, ask("k"))).unwrap();
        let advanced = block_on(holder.advance(&call, owner("ops"), 1)).unwrap();
        assert!(advanced.closed_for_ms < call.timeout_ms, "{advanced:?}");
        let try_it = AcquireLeaseRequest { wait_ms: 0, ..ask("k") };
        let refused = block_on(waiter.acquire(&call, try_it)).unwrap_err();
        assert!(matches!(refused, StoreError::Unavailable { .. }), "{server:?}: {refused}");
        // As `/readyz` of a server asks, and `store status`.
        let closed_for_ms = || block_on(waiter.closed_for_ms(&call)).unwrap();
        assert!((1..=advanced.closed_for_ms).contains(&closed_for_ms()), "{server:?}: it is closed");
        assert!(block_on(waiter.status(&call)).unwrap().closed_for_ms > 0, "{server:?}: and says so");
        for key in ["k", "never-held"] {
            let acquired = block_on(waiter.acquire(&call, ask(key)));
            let acquired = acquired.unwrap_or_else(|error| panic!("{server:?}, {key}: {error}"));
            assert!(acquired.grant.token > first.grant.token, "{server:?}, {key}");
        }
        assert_eq!(closed_for_ms(), 0, "{server:?}: it grants again");
    });
}
