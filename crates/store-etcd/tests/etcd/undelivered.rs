//! Grants that find their caller gone (R14), and the same request sent again meanwhile (R13).

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, LeaseStore as _, StoreError};
use fencehold_core::lease::LeaseOutcome;
use fencehold_store_etcd::EtcdRequest;
use fencehold_test_servers::calls::UnreadCall;
use fencehold_test_store::block_on;

use crate::call;
use crate::test_client::{HeldLease, TTL_MS, TestClient, people};

/// Asks as a caller that can go before it looks at the answer, and returns when the write that decides stands at the gate.
fn unread_acquire(
    person: &TestClient,
    request: AcquireLeaseRequest,
) -> UnreadCall<'_, Result<AcquiredLease, StoreError>> {
    person.gate.hold_next(EtcdRequest::Write);
    let acquiring = UnreadCall::send(async move { person.store.acquire(&call(), request).await });
    person.gate.until_held();
    acquiring
}

fn endings(person: &TestClient) -> Vec<LeaseOutcome> {
    person.view("k").endings.iter().map(|ending| ending.outcome).collect()
}

fn until_abandoned(person: &TestClient) {
    let before_ms = SystemClock.now().store_ms;
    while endings(person).last() != Some(&LeaseOutcome::Abandoned) {
        assert!(SystemClock.now().store_ms - before_ms < TTL_MS / 2, "only its ttl will end it");
    }
    assert_eq!(person.holder("k"), None);
}

/// The key has a record, so that it can be looked at.
fn known(person: &TestClient) -> HeldLease {
    let first = person.take("k");
    person.release(&first).unwrap();
    first
}

/// The caller goes while its grant is on its way.
#[test]
fn a_grant_whose_caller_has_gone_is_freed() {
    let [a, b] = people(["A", "B"]);
    let first = known(&b);
    drop(unread_acquire(&a, a.ask("k")));
    a.gate.let_go();
    until_abandoned(&b);
    assert!(b.take("k").token > first.token);
}

/// The caller goes; its timeout ends while the grant is on its way, and the answer to that is lost.
#[test]
fn a_grant_whose_caller_has_gone_is_found_after_its_patience_and_freed() {
    let [a, b] = people(["A", "B"]);
    known(&b);
    // The second write, after that of the etcd lease.
    a.gate.lose_write(1);
    let acquiring = unread_acquire(&a, a.ask("k"));
    a.clock.pass(600_000);
    drop(acquiring);
    a.gate.let_go();
    until_abandoned(&b);
    assert!(a.gate.has_lost());
    assert_eq!(endings(&b).len(), 2, "granted once");
}

/// The same, but the caller gets 'outcome unknown', and only then goes without having heard it.
#[test]
fn a_grant_that_nobody_knew_of_is_freed_when_that_was_never_heard() {
    let [a, b] = people(["A", "B"]);
    known(&b);
    a.gate.lose_write(1);
    let acquiring = unread_acquire(&a, a.ask("k"));
    a.clock.pass(600_000);
    a.gate.let_go();
    acquiring.until_answered();
    drop(acquiring);
    until_abandoned(&b);
}

/// The caller gets 'outcome unknown', and asks again, through another handle: the lease is found by its hold id.
#[test]
fn a_grant_that_nobody_knew_of_is_found_by_its_hold_id() {
    let [a, b] = people(["A", "B"]);
    known(&b);
    a.gate.lose_write(1);
    let request = a.ask("k");
    let acquiring = unread_acquire(&a, request.clone());
    a.clock.pass(600_000);
    a.gate.let_go();
    assert!(matches!(block_on(acquiring.response), Err(StoreError::OutcomeUnknown { .. })));
    let told = b
        .acquire(AcquireLeaseRequest { hold_id_age_ms: 600_000, ..request.clone() })
        .unwrap();
    assert!(told.grant.resumed && told.grant.remaining_ms <= TTL_MS, "{told:?}");
    b.renew(&HeldLease { request, token: told.grant.token }).unwrap();
}

/// What was granted is given back so late that the same request, sent again through another handle, got it.
#[test]
fn a_grant_that_the_same_request_took_up_is_left_to_it() {
    let [a, b] = people(["A", "B"]);
    let request = a.ask("k");
    drop(unread_acquire(&a, request.clone()));
    a.gate.hold_next(EtcdRequest::Write);
    a.gate.let_go();
    // The giving back has looked, and is about to write.
    a.gate.until_held();
    let told = b.acquire(AcquireLeaseRequest { hold_id_age_ms: 1, ..request.clone() }).unwrap();
    assert!(told.grant.resumed, "it is the first sending's");
    a.gate.let_go();
    // Closing waits for what is under way.
    block_on(a.store.close());
    b.renew(&HeldLease { request, token: told.grant.token }).unwrap();
    assert!(endings(&b).is_empty());
}

/// Nor does it look and find its own, after it was taken up.
#[test]
fn a_grant_that_was_taken_up_before_it_could_be_given_back_is_left_alone() {
    let [a, b] = people(["A", "B"]);
    let request = a.ask("k");
    drop(unread_acquire(&a, request.clone()));
    a.gate.hold_next(EtcdRequest::Read);
    a.gate.let_go();
    a.gate.until_held();
    let told = b.acquire(AcquireLeaseRequest { hold_id_age_ms: 1, ..request.clone() }).unwrap();
    a.gate.let_go();
    block_on(a.store.close());
    b.renew(&HeldLease { request, token: told.grant.token }).unwrap();
}

/// What was granted is given back so late that it has run out, and another holder has the key.
#[test]
fn a_grant_that_is_given_back_late_leaves_the_next_holder_alone() {
    let [a, b] = people(["A", "B"]);
    drop(unread_acquire(&a, a.ask("k")));
    a.gate.hold_next(EtcdRequest::Write);
    a.gate.let_go();
    a.gate.until_held();
    b.run_out("k");
    let next = b.take("k");
    a.gate.let_go();
    block_on(a.store.close());
    b.renew(&next).unwrap();
    assert_eq!(endings(&b), [LeaseOutcome::Expired]);
}

/// The first sending was answered, and is at work; a repeat whose caller has gone leaves it alone.
#[test]
fn a_repeat_whose_caller_has_gone_ends_nothing() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("k");
    drop(unread_acquire(&b, AcquireLeaseRequest { hold_id_age_ms: 1, ..held.request.clone() }));
    b.gate.let_go();
    block_on(b.store.close());
    a.renew(&held).unwrap();
    assert_eq!(a.release(&held), Ok(held.token));
}

/// Its grant was sent, with no answer, and the key is another's: it may have had it, and stands in line when its store closes.
#[test]
fn who_may_have_had_a_grant_does_not_hear_that_nothing_was_done_when_its_store_closes() {
    let [a, b] = people(["A", "B"]);
    known(&b);
    a.gate.lose_write(1);
    let acquiring = unread_acquire(&a, a.ask_to_wait("k"));
    b.take("k");
    a.gate.hold_next(EtcdRequest::Watch);
    a.gate.let_go();
    // It stands in line.
    a.gate.until_held();
    assert!(a.gate.has_lost());
    a.gate.let_go();
    block_on(a.store.close());
    let answer = block_on(acquiring.response);
    assert!(matches!(answer, Err(StoreError::OutcomeUnknown { .. })), "{answer:?}");
}
