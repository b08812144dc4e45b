//! A fault gate: the answer of a write that was carried out is turned into a 503, a silence or a reset, at every write
//! in turn. No lease is lost, none is held twice, and the holder never waits for itself.

use fencehold_contract::{AcquireLeaseRequest, HoldRef, LeaseStore as _, StoreError};
use fencehold_core::lease::LeaseOutcome;
use fencehold_store_object::ResponseFate;

use crate::fixture::{Fixture, lost};
use crate::servers::{CLOUDS, ObjectServer};

/// Short, so that a silence is given up on after two seconds.
const TTL_MS: u64 = 12_000;

/// How many writes a life has: acquire, two renewals, release; then the next holder's acquire.
const WRITES: usize = 5;

fn a_life_with_one_lost_answer(server: ObjectServer, nth: usize, fate: ResponseFate) {
    let context = format!("{server:?}, write {nth}, {fate:?}");
    let fixture = Fixture::on(server);
    let (a, b) = (fixture.holder("A"), fixture.holder("B"));
    if nth + 1 < WRITES {
        a.gate.lose_write(nth, fate);
    } else {
        b.gate.lose_write(0, fate);
    }
    let request = AcquireLeaseRequest { ttl_ms: TTL_MS, ..a.ask("k") };
    let hold = request.hold_id;
    let acquired = a.acquire(request).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert!(!acquired.grant.resumed, "{context}: granted once");
    let token = acquired.grant.token;
    let own = HoldRef { key: acquired.key, hold_id: hold, token };
    assert_eq!(b.held_by("k"), ("A".to_owned(), token), "{context}");
    for _ in 0..2 {
        let renewal = a.renew(&own).unwrap_or_else(|refusal| panic!("{context}: {refusal}"));
        assert_eq!((renewal.token, renewal.remaining_ms), (token, TTL_MS), "{context}");
        assert_eq!(b.held_by("k"), ("A".to_owned(), token), "{context}");
    }
    assert_eq!(a.release(&own), Ok(token), "{context}");
    let next = b.take("k");
    assert_eq!(next.token.get(), token.get() + 1, "{context}: nothing else was granted in between");
    assert_eq!(lost(a.renew(&own)).0, Some(LeaseOutcome::Released), "{context}");
    let view = b.look("k").unwrap();
    assert_eq!(view.endings.len(), 1, "{context}: it ended once");
    assert!(a.gate.is_done() && b.gate.is_done(), "{context}: the answer was lost");
}

fn every_write_in_turn(server: ObjectServer) {
    for fate in [ResponseFate::Unavailable, ResponseFate::Silence, ResponseFate::Reset] {
        // Side by side, since a silence is waited out.
        std::thread::scope(|scope| {
            for nth in 0..WRITES {
                scope.spawn(move || a_life_with_one_lost_answer(server, nth, fate));
            }
        });
    }
}

#[test]
fn no_answer_that_is_lost_loses_or_doubles_a_lease_on_s3() {
    every_write_in_turn(ObjectServer::Moto);
}

#[test]
fn no_answer_that_is_lost_loses_or_doubles_a_lease_on_gs() {
    every_write_in_turn(ObjectServer::Gcs);
}

#[test]
fn no_answer_that_is_lost_loses_or_doubles_a_lease_on_az() {
    every_write_in_turn(ObjectServer::Azurite);
}

/// Force with a lost answer: it ends the hold that it was meant for, once, and consumes one token.
#[test]
fn a_revocation_whose_answer_is_lost_hits_once() {
    for server in CLOUDS {
        for fate in [ResponseFate::Unavailable, ResponseFate::Reset] {
            let fixture = Fixture::on(server);
            let (a, p) = (fixture.holder("A"), fixture.holder("P"));
            let held = a.take("k");
            p.gate.lose_write(0, fate);
            let revoked = p.revoke("k").unwrap_or_else(|error| panic!("{server:?}: {error}"));
            assert_eq!(revoked[0].revoked.token, held.token);
            let (view, consumed) = (p.look("k").unwrap(), revoked[0].revoked.consumed_token);
            assert_eq!((view.token, view.endings.len()), (consumed, 1), "{server:?}");
        }
    }
}

/// Two releases in one call, of which one stands at the gate until the caller's timeout: the other was done, so it is
/// not said that nothing was.
#[test]
fn a_call_of_which_a_part_was_done_says_that_it_does_not_know() {
    let fixture = Fixture::on(ObjectServer::Gcs);
    let a = fixture.holder("A");
    let held = vec![a.take("j"), a.take("k")];
    let gate = a.gate.hold_write();
    let call = a.call.clone().with_timeout_ms(1_000);
    let answer = fencehold_test_store::block_on(a.store.release(&call, held));
    assert!(matches!(answer, Err(StoreError::OutcomeUnknown { .. })), "{answer:?}");
    gate.arrived();
    let holders = ["j", "k"].map(|key| a.look(key).expect("a key").holder.is_some());
    assert_eq!(holders.iter().filter(|held| **held).count(), 1, "one was released, the other was not");
}
