//! Renewals and signs of life have connections of their own: no call of the same handle keeps them waiting, however many there are and
//! whatever those wait for.

use std::thread;

use fencehold_contract::job::ClaimJobsRequest;
use fencehold_test_servers::calls::{OneByOne as _, call, key, lease_request, unavailable};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JobRaceFixture};
use crate::job_transactions::{attempt, request};
use crate::session::{Session, until};

/// As many as the URL of the tests allows.
const CONNECTIONS: usize = 4;

/// A session that keeps every look at a lease waiting, and no renewal.
fn in_the_way_of_looks(fixture: &JobRaceFixture) -> Session {
    let session = fixture.session();
    session.value("BEGIN");
    session.value("LOCK TABLE lease_ending IN ACCESS EXCLUSIVE MODE");
    session
}

/// Does something while all connections for calls are in use, each by a call that waits.
fn with_all_connections_in_use(fixture: &JobRaceFixture, work: impl FnOnce()) {
    let store = fixture.test_store.store();
    let blocker = in_the_way_of_looks(fixture);
    thread::scope(|scope| {
        let looks: Vec<_> = (0..2 * CONNECTIONS)
            .map(|_| scope.spawn(|| block_on(store.get(&call(), key("k"))).unwrap()))
            .collect();
        let in_use = format!(
            "SELECT count(*) FROM pg_stat_activity WHERE '{}' = ANY (pg_blocking_pids(pid)::text[]) AND query LIKE '%lease_get%'",
            blocker.pid
        );
        until("all connections in use", || fixture.watch.value(&in_use) == CONNECTIONS.to_string());
        work();
        assert_eq!(fixture.watch.value(&in_use), CONNECTIONS.to_string(), "they are still in use");
        blocker.value("COMMIT");
        for look in looks {
            look.join().unwrap();
        }
    });
}

#[test]
fn renewals_go_through_while_all_connections_for_calls_are_in_use() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let lease = store.take(lease_request("k", 1, "A"));
    let jobs = store.jobs().unwrap();
    block_on(jobs.claim(&call(), request(A))).unwrap();
    with_all_connections_in_use(&fixture, || {
        let soon = || call().with_timeout_ms(30_000);
        let renewed = block_on(store.renew(&soon(), vec![lease])).expect("leases are renewed");
        assert!(renewed.results[0].is_ok(), "{renewed:?}");
        let renewed =
            block_on(jobs.renew_attempts(&soon(), vec![attempt(A, 1)])).expect("claims are renewed");
        assert!(renewed.results[0].is_ok(), "{renewed:?}");
        // One that is decided by the rules, for it is refused.
        let refused = block_on(jobs.renew_attempts(&soon(), vec![attempt(B, 1)])).expect("it is answered");
        assert!(refused.results[0].is_err(), "{refused:?}");
    });
}

#[test]
fn a_claim_keeps_its_place_in_line_while_all_connections_for_calls_are_in_use() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let jobs = store.jobs().unwrap();
    block_on(jobs.claim(&call(), request(A))).unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            let wait = ClaimJobsRequest { wait_ms: 600_000, ..request(B) };
            block_on(jobs.claim(&call(), wait)).unwrap()
        });
        let beat = || fixture.watch.value("SELECT max(beat) FROM fencehold.job_waiter");
        until("in line", || !beat().is_empty());
        with_all_connections_in_use(&fixture, || {
            let before = beat();
            until("its place is kept up", || beat() != before);
        });
        fixture.watch.run("SELECT fencehold.enqueue_job('q', 'work', '2')");
        assert_eq!(waiting.join().unwrap().jobs.len(), 1);
    });
}

/// The last attempt, too, waits for locks no longer than the time that is left: so it is answered, and says why nothing was renewed.
#[test]
fn renewals_behind_a_lock_learn_that_it_was_in_the_way() {
    let (fixture, [other]) = JobRaceFixture::with_sessions();
    let store = fixture.test_store.store();
    let lease = store.take(lease_request("k", 1, "A"));
    let jobs = store.jobs().unwrap();
    block_on(jobs.claim(&call(), request(A))).unwrap();
    other.value("BEGIN");
    other.value("SELECT FROM lease_hold, job_running FOR UPDATE");
    let soon = || call().with_timeout_ms(3_000);
    let why = unavailable(block_on(store.renew(&soon(), vec![lease])));
    assert!(why.contains("55P03"), "{why}");
    let why = unavailable(block_on(jobs.renew_attempts(&soon(), vec![attempt(A, 1)])));
    assert!(why.contains("55P03"), "{why}");
}
