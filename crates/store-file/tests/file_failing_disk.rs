//! A disk that fails (R26): nothing is acknowledged that may be gone, and the next owner knows.

use fencehold_contract::{CallContext, LeaseStore, StoreError};
use fencehold_core::Namespace;

use crate::support::{
    Fixture, TTL_MS, acquire, block_on, call, key, remaining_ms, renew, request, take, view,
};

fn impatient() -> CallContext {
    CallContext::new(Namespace::default()).with_timeout_ms(300)
}

#[test]
fn what_may_be_lost_is_never_acknowledged_and_live_leases_get_a_full_ttl_anew() {
    let (fixture, store) = Fixture::opened();
    let token = take(&store, "k", 1);
    take(&store, "ended", 1);
    fixture.clock.advance_ms(TTL_MS - 1);
    fixture.set_gate("commit.fails");
    // The disk fails under this one, and goes on failing until the caller's timeout.
    let error = block_on(store.acquire(&impatient(), request("new", 1))).unwrap_err();
    assert!(matches!(error, StoreError::OutcomeUnknown { .. } | StoreError::Unavailable { .. }), "{error:?}");
    fixture.lift_gate("commit.fails");
    assert_eq!(remaining_ms(&store, "k"), TTL_MS, "a renewal may have been lost: a full ttl anew");
    assert!(!fixture.path().join("uncertain").exists(), "the mark has been heeded");
    assert_eq!(renew(&store, "k", 1, token), TTL_MS);
    assert_eq!(view(&store, "k").token, token);
    assert_eq!(take(&store, "new", 1).get(), 1, "the grant that was not acknowledged is as if it never was");
}

#[test]
fn where_the_failure_cannot_be_noted_nobody_serves_until_the_last_deadline_is_past() {
    let (fixture, store) = Fixture::opened();
    take(&store, "k", 1);
    fixture.set_gate("commit.fails");
    fixture.set_gate("mark.fails");
    assert!(block_on(store.acquire(&impatient(), request("new", 1))).is_err());
    fixture.lift_gate("commit.fails");
    let other = fixture.open();
    for handle in [&store, &other] {
        let error = block_on(handle.get(&impatient(), key("k"))).unwrap_err().to_string();
        assert!(error.contains("nor could that be noted"), "{error}");
    }
    fixture.clock.advance_ms(TTL_MS);
    let granted = loop {
        match acquire(&other, "k", 2) {
            // It has not looked at the clock yet.
            Err(StoreError::Unavailable { .. }) => std::thread::yield_now(),
            granted => break granted,
        }
    };
    assert_eq!(granted.unwrap().grant.token.get(), 2);
}

/// The owner is slow to note what happened, and another process counts it as silent already: until the note is there, no process
/// may start from what is on disk.
#[test]
fn nobody_takes_over_between_the_failure_and_its_note() {
    let (fixture, owner) = Fixture::opened();
    take(&owner, "k", 1);
    let other = fixture.open();
    block_on(other.status(&call())).unwrap();
    fixture.clock.advance_ms(TTL_MS - 1);
    fixture.set_gate("commit.fails");
    fixture.set_gate("mark.closed");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| block_on(owner.acquire(&impatient(), request("new", 1))));
        fixture.await_gate("mark");
        fixture.lift_gate("commit.fails");
        // Long enough for the owner to count as silent, and for several attempts to take over.
        let patient = call().with_timeout_ms(3_500);
        let refused = block_on(other.get(&patient, key("k")));
        fixture.lift_gate("mark.closed");
        assert!(asking.join().unwrap().is_err(), "it was not kept");
        let Err(StoreError::Unavailable { message: why }) = refused else { panic!("served: {refused:?}") };
        assert!(why.contains(&format!("pid {}", std::process::id())), "{why}");
    });
    assert_eq!(remaining_ms(&other, "k"), TTL_MS, "the new owner knows");
}

#[test]
fn a_handle_that_is_closed_as_the_disk_fails_leaves_the_note_all_the_same() {
    let (fixture, owner) = Fixture::opened();
    take(&owner, "k", 1);
    fixture.clock.advance_ms(TTL_MS - 1);
    fixture.set_gate("commit.fails");
    fixture.set_gate("commit.closed");
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| block_on(owner.acquire(&impatient(), request("new", 1))));
        fixture.await_gate("commit");
        let closing = scope.spawn(|| block_on(owner.close()));
        fixture.lift_gate("commit.closed");
        closing.join().unwrap();
        assert!(asking.join().unwrap().is_err(), "it was not kept");
    });
    fixture.lift_gate("commit.fails");
    assert_eq!(remaining_ms(&fixture.open(), "k"), TTL_MS);
}

/// What was written and not synced is synced when the log is copied back: then, too, it can be lost.
#[test]
fn a_log_that_cannot_be_copied_back_as_the_owner_ends_is_noted() {
    let (fixture, owner) = Fixture::opened();
    let token = take(&owner, "k", 1);
    renew(&owner, "k", 1, token);
    fixture.clock.advance_ms(TTL_MS - 1);
    fixture.set_gate("checkpoint.fails");
    drop(owner);
    fixture.lift_gate("checkpoint.fails");
    assert_eq!(remaining_ms(&fixture.open(), "k"), TTL_MS);
}

#[test]
fn a_log_that_cannot_be_copied_back_by_the_next_owner_is_noted() {
    let (fixture, store) = Fixture::opened();
    // A long one: a short one stays.
    for nth in 0..50 {
        take(&store, &format!("key-{nth}"), 1);
    }
    take(&store, "k", 1);
    let copy = fixture.copied(&["fencehold.db", "fencehold.db-wal"]);
    copy.clock.advance_ms(TTL_MS - 1);
    copy.set_gate("copy.fails");
    let next = copy.open();
    assert!(block_on(next.get(&impatient(), key("k"))).is_err());
    copy.lift_gate("copy.fails");
    assert_eq!(remaining_ms(&next, "k"), TTL_MS);
    assert!(!copy.path().join("uncertain").exists(), "the mark has been heeded");
}

/// A directory that no process serves is one file with all that was acknowledged, as a person would copy it.
#[test]
fn a_short_log_is_not_copied_by_an_owner_that_begins_but_by_one_that_ends() {
    let fixture = Fixture::new();
    let token = take(&fixture.open(), "k", 1);
    fixture.clock.advance_ms(1);
    fixture.set_gate("copy.fails");
    for nth in 0..5 {
        let store = fixture.open();
        assert_eq!(view(&store, "k").token, token);
        assert_eq!(remaining_ms(&store, "k"), TTL_MS - 1, "nothing failed that lengthens it");
        take(&store, &format!("key-{nth}"), 1);
    }
    assert!(!fixture.path().join("fencehold.db-wal").exists());
    assert_eq!(view(&fixture.copied(&["fencehold.db"]).open(), "key-4").token.get(), 1);
}
