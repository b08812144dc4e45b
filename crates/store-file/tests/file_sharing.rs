//! One directory, several handles: the process that opens it first serves the others, and a later one goes on where it ended.

use fencehold_contract::{LeaseStore, ListLeasesRequest, RevokeTarget, StoreError};
use fencehold_core::Refusal;
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::limits::{BATCH_MAX, PAGE_MAX};
use fencehold_test_servers::calls::{OneByOne as _, revoke_key, revoke_request};

use crate::support::{
    Fixture, TTL_MS, acquire, block_on, call, hold, release, remaining_ms, renew, request, take,
    until_waiting, view,
};

#[test]
fn a_second_handle_asks_the_first_and_takes_over_when_it_ends() {
    let (fixture, first) = Fixture::opened();
    assert_eq!(take(&first, "k", 1).get(), 1);

    let second = fixture.open();
    let refused = acquire(&second, "k", 2).unwrap_err();
    assert!(matches!(refused, StoreError::Refused { refusal: Refusal::Held { .. }, .. }), "{refused:?}");
    let status = block_on(second.status(&call())).unwrap();
    assert_eq!((status.epoch, status.held_count), (Some(1), 1));

    drop(first);
    let status = block_on(second.status(&call())).unwrap();
    let serves = (status.epoch, status.held_count);
    assert_eq!(serves, (Some(2), 1), "the second serves now, and nothing was lost");
    fixture.clock.advance_ms(TTL_MS - 1);
    assert!(acquire(&second, "k", 2).is_err(), "the deadline holds over a takeover");
    fixture.clock.advance_ms(1);
    assert_eq!(take(&second, "k", 2).get(), 2);
    assert_eq!(view(&second, "k").endings[0].outcome, LeaseOutcome::Expired);
}

#[test]
fn a_renewal_holds_over_a_takeover() {
    let (fixture, first) = Fixture::opened();
    let token = take(&first, "k", 1);
    fixture.clock.advance_ms(TTL_MS - 1_000);
    assert_eq!(renew(&first, "k", 1, token), TTL_MS);
    drop(first);
    let second = fixture.open();
    fixture.clock.advance_ms(TTL_MS - 1);
    assert_eq!(remaining_ms(&second, "k"), 1);
}

#[test]
fn a_renewal_of_an_earlier_hold_never_lengthens_a_later_one() {
    let (fixture, first) = Fixture::opened();
    let token = take(&first, "k", 1);
    renew(&first, "k", 1, token);
    release(&first, "k", 1, token);
    let mut short = request("k", 2);
    short.ttl_ms = 1_000;
    block_on(first.acquire(&call(), short)).unwrap();
    drop(first);
    assert_eq!(remaining_ms(&fixture.open(), "k"), 1_000);
}

#[test]
fn one_who_waits_through_the_socket_is_granted_by_the_next_owner() {
    let (fixture, first) = Fixture::opened();
    take(&first, "k", 1);
    let second = fixture.open();
    let mut waiting = request("k", 2);
    waiting.wait_ms = 60_000;
    let waiter = std::thread::spawn(move || {
        let granted = block_on(second.acquire(&call(), waiting)).unwrap();
        (granted, second)
    });
    until_waiting(&first, "k");
    // The owner goes; the one who waits takes over and stands in its own line.
    drop(first);
    let third = fixture.open();
    until_waiting(&third, "k");
    fixture.clock.advance_ms(TTL_MS);
    let (granted, _second) = waiter.join().unwrap();
    assert_eq!(granted.grant.token.get(), 2);
}

#[test]
fn an_owner_that_was_superseded_answers_nothing_and_asks_its_successor() {
    let (fixture, first) = Fixture::opened();
    take(&first, "k", 1);
    // What a contender does to an owner that has fallen silent: it raises the epoch, and commits.
    fixture.tamper("BEGIN; UPDATE meta SET epoch = epoch + 1; UPDATE leases SET counter = 41; COMMIT");
    // The old owner would have answered 1 from its memory.
    assert_eq!(view(&first, "k").token.get(), 41, "an answer that changes nothing is checked too");
    let status = block_on(first.status(&call())).unwrap();
    assert_eq!(status.epoch, Some(3));
}

#[test]
fn an_owner_that_was_superseded_commits_nothing() {
    let (fixture, first) = Fixture::opened();
    let token = take(&first, "k", 1);
    fixture.tamper("UPDATE meta SET epoch = epoch + 1");
    release(&first, "k", 1, token);
    // It was carried out once, by the next epoch.
    let status = block_on(first.status(&call())).unwrap();
    assert_eq!((status.epoch, status.held_count), (Some(3), 0));
    let ended = view(&first, "k").endings;
    assert_eq!(ended.iter().map(|ending| ending.outcome).collect::<Vec<_>>(), [LeaseOutcome::Released]);
}

/// What an owner knows may be old. A commit that does not look at the epoch would write it over what its successor kept.
#[test]
fn an_owner_that_was_superseded_writes_over_nothing() {
    let (fixture, first) = Fixture::opened();
    let token = take(&first, "k", 1);
    // Another process took over, and the key has passed through many hands since.
    fixture.tamper("BEGIN; UPDATE meta SET epoch = epoch + 1; UPDATE leases SET counter = 100; COMMIT");
    let answer = first.release_one(&hold("k", 1, token));
    let lost = matches!(&answer, Err(Refusal::Lost { current_token: current, .. }) if current.get() == 100);
    assert!(lost, "{answer:?}");
    assert_eq!(view(&first, "k").token.get(), 100);
}

#[test]
fn a_directory_deeper_than_a_socket_path_can_be_is_shared_all_the_same() {
    let fixture = Fixture::new();
    let deep = fixture.path().join("d".repeat(100)).join("e".repeat(100));
    let clock = || std::sync::Arc::new(fixture.clock.clone());
    let first = fencehold_store_file::FileStore::open_or_create(&deep, clock()).unwrap();
    take(&first, "k", 1);
    let second = fencehold_store_file::FileStore::open_or_create(&deep, clock()).unwrap();
    assert!(acquire(&second, "k", 2).is_err(), "held, as the owner says through its socket");
}

/// What comes back from the owner's socket for these bytes, until it hangs up.
fn answer_to(fixture: &Fixture, bytes: &[u8]) -> String {
    use std::io::{Read, Write};
    let mut socket = std::os::unix::net::UnixStream::connect(fixture.path().join("owner-1.sock")).unwrap();
    socket.write_all(bytes).unwrap();
    socket.shutdown(std::net::Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn a_process_of_another_version_is_told_which() {
    let (fixture, owner) = Fixture::opened();
    take(&owner, "k", 1);
    // A frame of four bytes: a hello of protocol 99, schema 1, pid 7.
    let told = answer_to(&fixture, &[4, 0, 0, 0, 0, 99, 1, 7]);
    assert!(told.contains("this process speaks protocol 99 and schema 1"), "{told}");
    assert!(told.contains(&format!("pid {}", std::process::id())), "{told}");
    let told = answer_to(&fixture, &[4, 0, 0, 0, 0, 1, 98, 7]);
    assert!(told.contains("schema 98"), "{told}");
    // Every earlier protocol began in the same way.
    for earlier in 1..6 {
        let told = answer_to(&fixture, &[4, 0, 0, 0, 0, earlier, 3, 7]);
        let speaks =
            format!("speaks protocol {earlier} and schema 3: use the same version of fencehold in both");
        assert!(told.contains(&speaks), "{told}");
    }
}

#[test]
fn garbage_on_the_socket_disturbs_nobody() {
    let (fixture, owner) = Fixture::opened();
    let token = take(&owner, "k", 1);
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[255; 64], &[0; 64], &[4, 0, 0, 0, 9, 9, 9, 9]] {
        assert_eq!(answer_to(&fixture, garbage), "");
    }
    renew(&owner, "k", 1, token);
}

#[test]
fn force_is_never_sent_twice() {
    let (fixture, first) = Fixture::opened();
    let token = take(&first, "k", 1);
    let second = fixture.open();
    block_on(second.status(&call())).unwrap();
    // The owner goes in the middle of the revocation, without an answer; the next owner is held until the disk works.
    fixture.set_gate("commit.fails");
    fixture.set_gate("takeover.closed");
    let asking = std::thread::spawn(move || (block_on(second.revoke(&call(), revoke_key("k"))), second));
    fixture.await_gate("takeover");
    fixture.lift_gate("commit.fails");
    fixture.lift_gate("takeover.closed");
    let (answer, second) = asking.join().unwrap();
    assert!(matches!(answer, Err(StoreError::OutcomeUnknown { .. })), "{answer:?}");
    let view = view(&second, "k");
    assert_eq!(view.holder.unwrap().owner.as_str(), "owner-1", "a second sending struck no one");
    assert_eq!(view.token, token);
}

#[test]
fn a_revocation_of_more_than_a_page_ends_them_all() {
    let (fixture, owner) = Fixture::opened();
    for nth in 0..=PAGE_MAX {
        take(&owner, &format!("gpu/{nth}"), 1);
    }
    take(&owner, "cpu/1", 1);
    let other = fixture.open();
    let revoke = revoke_request(RevokeTarget::Prefix("gpu/".to_owned()));
    let ended = block_on(other.revoke(&call(), revoke)).unwrap();
    assert_eq!(ended.len(), PAGE_MAX + 1);
    assert_eq!(block_on(other.status(&call())).unwrap().held_count, 1, "and nothing else");
}

#[test]
fn a_question_that_is_too_long_is_refused_and_the_link_lives() {
    let (fixture, owner) = Fixture::opened();
    let token = take(&owner, "k", 1);
    let other = fixture.open();
    let waiting = std::thread::scope(|scope| {
        let mut waiter = request("k", 2);
        waiter.wait_ms = 60_000;
        let waiting = scope.spawn(|| block_on(other.acquire(&call(), waiter)));
        until_waiting(&owner, "k");
        let too_many = vec![hold("k", 1, token); BATCH_MAX + 1];
        let refused = block_on(other.renew(&call(), too_many)).unwrap_err();
        assert!(matches!(refused, StoreError::BadInput(_)), "{refused}");
        let prefix = Some("x".repeat(40 << 20));
        let too_long = ListLeasesRequest { prefix, limit: 1, ..ListLeasesRequest::default() };
        let refused = block_on(other.list(&call(), too_long)).unwrap_err();
        assert!(matches!(refused, StoreError::BadInput(_)), "{refused}");
        assert_eq!(view(&other, "k").waiter_count, 1, "the waiter still stands in line");
        release(&owner, "k", 1, token);
        waiting.join().unwrap()
    });
    assert_eq!(waiting.unwrap().grant.token.get(), 2);
}

/// A store as its owner left it when it was killed: everything acknowledged is in the log.
fn killed() -> Fixture {
    let (fixture, store) = Fixture::opened();
    take(&store, "k", 1);
    fixture.copied(&["fencehold.db", "fencehold.db-wal", "disk.lock"])
}

fn impatient() -> fencehold_contract::CallContext {
    call().with_timeout_ms(300)
}

/// A backup reads for as long as it copies.
#[test]
fn one_who_reads_keeps_nobody_from_taking_over() {
    let fixture = killed();
    let reader = rusqlite::Connection::open(fixture.database()).unwrap();
    reader.execute_batch("BEGIN; SELECT count(*) FROM meta").unwrap();
    let store = fixture.open();
    let granted = acquire(&store, "other", 2);
    assert!(granted.is_ok(), "{granted:?}");
    assert_eq!(view(&store, "k").token.get(), 1);
}

#[test]
fn whoever_is_in_the_way_is_named_and_not_the_last_owner() {
    let fixture = killed();
    std::fs::write(fixture.path().join("owner-1.lock"), "4194301").unwrap();
    let turns = std::fs::File::open(fixture.path().join("disk.lock")).unwrap();
    turns.lock().unwrap();
    let store = fixture.open();
    let error = loop {
        let error = block_on(store.acquire(&impatient(), request("other", 2)))
            .unwrap_err()
            .to_string();
        // It has not looked yet.
        if !error.contains("no process serves this directory yet") {
            break error;
        }
    };
    assert!(!error.contains("4194301"), "it blames a process that has gone: {error}");
    assert!(error.contains(&format!("pid {}", std::process::id())), "{error}");
}

/// Between the look at the database and the look at its log, another process makes both.
#[test]
fn a_new_directory_can_be_opened_while_another_process_makes_the_store() {
    let (fixture, made) = (Fixture::new(), killed());
    fixture.set_gate("look.closed");
    std::thread::scope(|scope| {
        let opening = scope.spawn(|| fixture.try_open());
        fixture.await_gate("look");
        for name in ["fencehold.db", "fencehold.db-wal"] {
            std::fs::copy(made.path().join(name), fixture.path().join(name)).unwrap();
        }
        fixture.lift_gate("look.closed");
        let opened = opening.join().unwrap();
        let store = opened.unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(view(&store, "k").token.get(), 1);
    });
}
