//! Races, arranged: a chosen request of a chosen holder is held until another has been answered.

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::metrics::Counter;
use fencehold_contract::{AcquireLeaseRequest, LeaseStore, StoreError};
use fencehold_core::Refusal;
use fencehold_core::lease::LeaseOutcome;
use fencehold_store_etcd::EtcdRequest;
use fencehold_test_servers::calls::{OneByOne as _, held_by, revoke_key, unavailable};
use fencehold_test_store::block_on;

use crate::call;
use crate::test_client::{HeldLease, TTL_MS, TestClient, people};

fn lost(how: LeaseOutcome) -> impl Fn(Refusal) -> bool {
    move |refusal| matches!(refusal, Refusal::Lost { outcome: Some(told), .. } if told == how)
}

fn revoke(person: &TestClient, name: &str) {
    block_on(person.store.revoke(&call(), revoke_key(name))).unwrap();
}

/// R01: A's release has seen its own lease; it runs out; B takes the key; A's release lands.
#[test]
fn a_release_that_was_overtaken_leaves_the_newcomer_alone() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("k");
    let own = held.as_ref();
    let release = a.hold_up(EtcdRequest::Write, move |store| store.release_one(&own));
    b.run_out("k");
    let newcomer = b.take("k");
    a.gate.let_go();
    assert!(lost(LeaseOutcome::Expired)(release.join().unwrap().unwrap_err()));
    assert!(b.renew(&newcomer).is_ok(), "untouched");
}

/// R02: A and B have both seen the same dead lease; B takes it; then A's grant lands.
#[test]
fn of_two_who_saw_the_same_dead_lease_one_wins_and_the_other_sees_it() {
    let [a, b] = people(["A", "B"]);
    b.take("k");
    b.run_out("k");
    let late = a.hold_up_acquire(a.ask("k"));
    let winner = b.take("k");
    a.gate.let_go();
    assert_eq!(held_by(late.join().unwrap()), ("B".to_owned(), winner.token));
}

/// R03, R05: one who is about to put on record that a lease ran out is overtaken by the next holder.
#[test]
fn a_late_note_that_a_lease_ran_out_leaves_the_next_holder_alone() {
    let [a, b] = people(["A", "B"]);
    let dead = a.take("k");
    b.run_out("k");
    // The refused renewal puts the end on record.
    let renewal = a.hold_up_renewal(EtcdRequest::Write, &dead);
    let next = b.take("k");
    a.gate.let_go();
    assert!(lost(LeaseOutcome::Expired)(renewal.join().unwrap().unwrap_err()));
    assert!(b.renew(&next).is_ok(), "untouched");
    assert_eq!(b.view("k").endings.len(), 1, "it ended once");
}

/// R04, R11: the keep-alive has left; an operator revokes; then the renewal looks. And the other way round: it is
/// revoked before the keep-alive leaves.
#[test]
fn a_renewal_that_meets_a_revocation_is_refused() {
    for held_at in [EtcdRequest::Read, EtcdRequest::KeepAlive] {
        let [a, b] = people(["A", "B"]);
        let held = a.take("k");
        let renewal = a.hold_up_renewal(held_at, &held);
        revoke(&b, "k");
        a.gate.let_go();
        assert!(lost(LeaseOutcome::Revoked)(renewal.join().unwrap().unwrap_err()), "held at {held_at:?}");
        assert_eq!(b.holder("k"), None);
    }
}

/// R08: A's renewal is on its way when its lease runs out and B takes the key.
#[test]
fn a_delayed_renewal_steals_nothing_back() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("k");
    let renewal = a.hold_up_renewal(EtcdRequest::KeepAlive, &held);
    b.run_out("k");
    let next = b.take("k");
    a.gate.let_go();
    match renewal.join().unwrap() {
        Err(Refusal::Lost { current_token: current, .. }) => assert_eq!(current, next.token),
        other => panic!("{other:?}"),
    }
    assert!(b.renew(&next).is_ok());
}

/// R12: a heartbeat is on its way when its holder releases.
#[test]
fn a_heartbeat_behind_a_release_revives_nothing() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("k");
    let renewal = a.hold_up_renewal(EtcdRequest::KeepAlive, &held);
    assert!(b.release(&held).is_ok());
    a.gate.let_go();
    assert!(lost(LeaseOutcome::Released)(renewal.join().unwrap().unwrap_err()));
    assert_eq!(b.holder("k"), None);
}

/// R19: a waiter is about to take the key that came free, and its own etcd lease ends first: its place in line is gone, so
/// it is not granted from there, and the one behind it comes first.
#[test]
fn a_waiter_whose_own_etcd_lease_has_ended_is_not_granted() {
    let [a, b, c] = people(["A", "B", "C"]);
    let held = a.take("k");
    let first = b.stand_in_line(b.ask_to_wait("k"));
    let request = c.ask_to_wait("k");
    let second = c.stand_in_line(request.clone());
    b.gate.hold_next(EtcdRequest::Write);
    c.gate.hold_next(EtcdRequest::Write);
    a.release(&held).unwrap();
    b.gate.until_held();
    block_on(a.store.end_waiting(&call(), "B".parse().unwrap())).unwrap();
    // C is first in line now, and has not taken the key yet when B's grant lands.
    c.gate.until_held();
    b.gate.let_go();
    while a.view("k").waiter_count < 2 {
        assert_eq!(a.holder("k"), None, "B stands in line anew");
    }
    c.gate.let_go();
    let taken = second.join().unwrap().unwrap();
    assert_eq!(a.holder("k").as_deref(), Some("C"));
    c.release(&HeldLease { request, token: taken.grant.token }).unwrap();
    assert!(first.join().unwrap().unwrap().grant.token > taken.grant.token);
}

/// R19: the time to stand in line is up while the grant is on its way: it is given back, and not told.
#[test]
fn a_grant_that_lands_after_the_waiters_time_is_given_back() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("k");
    let waiting = b.stand_in_line(b.ask_to_wait("k"));
    b.gate.hold_next(EtcdRequest::Write);
    a.release(&held).unwrap();
    b.gate.until_held();
    b.clock.pass(60_000);
    b.gate.let_go();
    assert!(matches!(
        waiting.join().unwrap(),
        Err(StoreError::Unavailable { .. } | StoreError::Refused { .. })
    ));
    assert_eq!(a.holder("k"), None);
    assert_eq!(a.view("k").endings.last().map(|ending| ending.outcome), Some(LeaseOutcome::Abandoned));
}

/// P7: the same request again takes the place in line of the earlier one, also through another handle.
#[test]
fn the_same_request_again_keeps_its_place_in_line() {
    let [a, b, c] = people(["A", "B", "C"]);
    let held = a.take("k");
    let request = b.ask_to_wait("k");
    let first = b.stand_in_line(request.clone());
    let behind = c.stand_in_line(c.ask_to_wait("k"));
    let again = a.start_acquire(AcquireLeaseRequest { hold_id_age_ms: 20, waited_before_ms: 20, ..request });
    let why = unavailable(first.join().unwrap());
    assert!(why.contains("sent again"), "{why}");
    assert_eq!(a.view("k").waiter_count, 2, "it stands in line once");
    a.release(&held).unwrap();
    again.join().unwrap().unwrap();
    assert_eq!(a.holder("k").as_deref(), Some("B"));
    a.run_out("k");
    behind.join().unwrap().unwrap();
}

/// R24: after an advance no token comes twice: on a key that the store knows, on one that it has never heard of, nor in
/// another namespace; and nothing is granted while it is closed.
#[test]
fn after_an_advance_no_token_comes_twice() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("known");
    let advanced = block_on(b.store.advance(&call(), "P".parse().unwrap(), 1_000)).unwrap();
    assert_eq!((advanced.key_count, advanced.ended_count, advanced.closed_for_ms), (1, 1, TTL_MS));
    let counts = &LeaseStore::metrics(&*b.store).expect("a handle counts").facts;
    let counted = counts.leases_ended(LeaseOutcome::Advanced).map(Counter::get);
    assert_eq!(counted, Some(1), "its lease counts as ended by it");
    assert!(lost(LeaseOutcome::Advanced)(a.renew(&held).unwrap_err()));
    let why = unavailable(b.acquire(b.ask("unknown")));
    assert!(why.contains("store advance"), "{why}");
    let closed_for_ms = || block_on(b.store.closed_for_ms(&call())).unwrap();
    assert!((1..=TTL_MS).contains(&closed_for_ms()), "as `/readyz` asks: {}", closed_for_ms());
    assert!(block_on(b.store.status(&call())).unwrap().closed_for_ms > 0, "and the status says so");
    block_on(b.store.reopen(&call(), TTL_MS)).unwrap();
    assert_eq!(closed_for_ms(), 0, "it grants again");
    let elsewhere = fencehold_contract::CallContext::new("elsewhere".parse().unwrap());
    for (call, name) in [(call(), "known"), (call(), "unknown"), (elsewhere, "unknown")] {
        let token = block_on(b.store.acquire(&call, b.ask(name))).unwrap().grant.token;
        assert!(token.get() > 1_000, "{name}: token {token}");
    }
    assert!(lost(LeaseOutcome::Advanced)(a.renew(&held).unwrap_err()), "and it stays ended");
    let again = AcquireLeaseRequest { hold_id_age_ms: 1, ..held.request.clone() };
    match a.acquire(again) {
        Err(StoreError::Refused { refusal: Refusal::HoldIdUsed { outcome: how, .. }, .. }) => {
            assert_eq!(how, Some(LeaseOutcome::Advanced));
        }
        other => panic!("{other:?}"),
    }
}

/// R27: whatever write of an acquisition, a renewal or a release loses its answer: no lease is lost, none is held twice,
/// and no caller waits for itself.
#[test]
fn a_lost_answer_of_any_write_is_resolved_by_reading_back() {
    let mut lost_answers = 0;
    for nth in 0..8 {
        let [a, b] = people(["A", "B"]);
        a.gate.lose_write(nth);
        let request = a.ask("k");
        let acquired = a.acquire(request.clone()).unwrap();
        assert!(!acquired.grant.resumed, "it is this call's own");
        assert_eq!(acquired.grant.remaining_ms, TTL_MS);
        assert_eq!(b.holder("k").as_deref(), Some("A"));
        assert_eq!(b.view("k").endings.len(), 0, "granted once");
        let held = HeldLease { request, token: acquired.grant.token };
        assert_eq!(a.renew(&held).unwrap().token, held.token);
        assert_eq!(a.release(&held), Ok(held.token));
        assert_eq!(b.holder("k"), None);
        assert_eq!(b.view("k").endings.len(), 1, "released once");
        lost_answers += usize::from(a.gate.has_lost());
    }
    assert!(lost_answers >= 4, "a lease and a grant, a release and a lease: {lost_answers}");
}

/// R27, P9: a revocation whose answer is lost ends one hold, and never the next.
#[test]
fn a_revocation_whose_answer_is_lost_strikes_once() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("k");
    b.gate.lose_write(0);
    revoke(&b, "k");
    assert!(b.gate.has_lost());
    assert!(lost(LeaseOutcome::Revoked)(a.renew(&held).unwrap_err()));
    assert_eq!(a.view("k").endings.len(), 1);
    assert_eq!(a.view("k").token.get(), held.token.get() + 1, "one token was consumed");
}

/// R32: the recorded ttl counts, whatever a contender has configured: the held key is on the holder's etcd lease.
#[test]
fn the_recorded_ttl_counts_not_a_contenders() {
    let [a, b] = people(["A", "B"]);
    a.take("k");
    let brief = AcquireLeaseRequest { ttl_ms: 2_000, ..b.ask("k") };
    let patient = AcquireLeaseRequest { ttl_ms: 600_000, ..b.ask("k") };
    for contender in [brief, patient] {
        match b.acquire(contender) {
            Err(StoreError::Refused {
                refusal: Refusal::Held { remaining_ms: expires_in_ms, .. }, ..
            }) => {
                assert!((TTL_MS / 2..=TTL_MS).contains(&expires_in_ms), "{expires_in_ms}");
            }
            other => panic!("{other:?}"),
        }
    }
}

/// P4, on etcd's own clock: a dead holder's key goes to one who waits, not before its deadline.
#[test]
fn a_dead_holders_key_goes_to_one_who_waits_and_not_early() {
    let [a, b] = people(["A", "B"]);
    let before_ms = SystemClock.now().store_ms;
    let dead = a.take_with(AcquireLeaseRequest { ttl_ms: 2_000, ..a.ask("k") });
    let next = b.acquire(b.ask_to_wait("k")).unwrap();
    let took_ms = SystemClock.now().store_ms - before_ms;
    assert!(took_ms >= 2_000, "{took_ms} ms");
    assert!(next.grant.token > dead.token);
    assert_eq!(b.view("k").endings.last().map(|ending| ending.outcome), Some(LeaseOutcome::Expired));
    assert!(lost(LeaseOutcome::Expired)(a.renew(&dead).unwrap_err()));
}

/// A hold is over at its `max_age`, however often it is renewed: etcd's clock says when.
#[test]
fn a_hold_is_over_at_its_max_age_however_often_it_is_renewed() {
    let [a, b] = people(["A", "B"]);
    let held = a.take_with(AcquireLeaseRequest { max_age_ms: Some(3_000), ..a.ask("k") });
    let waiting = b.stand_in_line(b.ask_to_wait("k"));
    let refused = loop {
        match a.renew(&held) {
            Ok(renewal) => assert!(renewal.remaining_ms <= 3_000, "{}", renewal.remaining_ms),
            Err(refusal) => break refusal,
        }
    };
    assert!(lost(LeaseOutcome::AgedOut)(refused));
    waiting.join().unwrap().unwrap();
    assert_eq!(b.holder("k").as_deref(), Some("B"));
}
