//! Those who contend for one key: they take it, write, and give it back; now and then one stalls and writes too late.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::{AcquireLeaseRequest, EtcdUrl, HoldRef, LeaseStore, StoreError};
use fencehold_core::{HoldId, Key, Token};
use fencehold_store_etcd::EtcdStore;
use fencehold_test_store::block_on;

use super::register::Register;
use crate::call;

pub(crate) const CONTENDERS: usize = 16;
/// One in so many holds is not given back: its holder stalls until another has written.
const STALLS_EVERY: u64 = 8;

/// Until it is time to go home.
pub(crate) fn hold_on_and_off(nth: usize, url: &EtcdUrl, register: &Register, stop: &AtomicBool) {
    let store = EtcdStore::open(url, Arc::new(SystemClock)).unwrap();
    let going_home = || stop.load(Ordering::SeqCst);
    while !going_home() {
        let request = fresh_request(nth);
        let before = register.largest();
        let Some(token) = take(&store, &request, &going_home) else { continue };
        register.granted(token, before);
        let hold = HoldRef { key: request.any_of[0].clone(), hold_id: request.hold_id, token };
        register.write(token);
        if token.get() % STALLS_EVERY == 0 {
            // It sleeps on, its lease ends, another holder writes, and it wakes up.
            if register.until_overtaken(token, going_home) {
                assert!(!register.write(token), "a stale write under token {token} was accepted");
            }
            continue;
        }
        // What a renewal or a release answers under faults is looked at elsewhere: here it only must not do harm.
        let _ = block_on(store.renew(&call(), vec![hold.clone()]));
        register.write(token);
        let _ = block_on(store.release(&call(), vec![hold]));
    }
}

fn fresh_request(nth: usize) -> AcquireLeaseRequest {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bits = [0x77; 16];
    bits[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    let owner = format!("holder-{nth}").parse().unwrap();
    let key = Key::new("contended").unwrap();
    AcquireLeaseRequest {
        wait_ms: 5_000,
        ..AcquireLeaseRequest::new(key, HoldId::from_random(bits), owner, 2_000)
    }
}

/// Asks with one hold id until it is granted, or its lease is over, or its time to wait is up.
fn take(store: &EtcdStore, request: &AcquireLeaseRequest, going_home: &impl Fn() -> bool) -> Option<Token> {
    let since_ms = SystemClock.now().store_ms;
    let mut request = request.clone();
    loop {
        match block_on(store.acquire(&call().with_timeout_ms(3_000), request.clone())) {
            Ok(acquired) => return Some(acquired.grant.token),
            Err(StoreError::Refused { .. }) => return None,
            Err(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }) if going_home() => {
                return None;
            }
            Err(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }) => {
                request.hold_id_age_ms = (SystemClock.now().store_ms - since_ms).max(1);
            }
            Err(other) => panic!("{other}"),
        }
    }
}
