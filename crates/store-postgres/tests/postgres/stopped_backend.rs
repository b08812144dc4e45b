//! R22: a backend is stopped in the middle of a call, for longer than a ttl, and then goes on. The clock is read behind the locks: so it
//! finds out what it has slept through.

use fencehold_test_store::TestStore as _;
use rustix::process::{Pid, Signal, kill_process};

use crate::session::{Session, with_sessions};
use crate::test_store::PostgresTestStore;

/// The server's process of a session, stopped until this is dropped.
struct StoppedBackend(Pid);

impl StoppedBackend {
    fn stop(pid: &str) -> Self {
        let pid = Pid::from_raw(pid.parse().unwrap()).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        StoppedBackend(pid)
    }
}

impl Drop for StoppedBackend {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// A session with a row of the schema locked, so that others are caught in the middle of their calls.
fn holding_up(test_store: &PostgresTestStore, row: &str) -> Session {
    let session = Session::new(test_store);
    session.value("BEGIN");
    session.value(&format!("SELECT 1 FROM {row} FOR UPDATE"));
    session
}

#[test]
fn a_renewal_that_slept_past_its_ttl_renews_nothing() {
    let (test_store, calls, [a, b]) = with_sessions();
    a.value(&calls.acquire("k", 1, "A"));
    let in_the_way = holding_up(&test_store, "lease_hold");
    let pid = a.pid.clone();
    let renewing = a.run_blocked_by(&in_the_way, &calls.renew("k", 1, 1));
    let stopped = StoppedBackend::stop(&pid);
    in_the_way.value("COMMIT");
    test_store.pass(30_000);
    let granted = b.take(&calls.acquire("k", 2, "B"));
    assert_eq!(granted, 2, "a session that has locked nothing is not in the way");
    drop(stopped);
    let (a, said) = renewing.ends_well();
    assert_eq!(said, "0");
    assert_eq!(a.value(&calls.holder("k")), "B");
}

#[test]
fn an_acquisition_that_slept_while_another_took_the_key_is_told_who_holds_it() {
    let (test_store, calls, [late, b]) = with_sessions();
    assert_eq!(b.take(&calls.acquire("k", 1, "B")), 1);
    b.value(&calls.release("k", 1, 1));
    let in_the_way = holding_up(&test_store, "lease_key");
    let pid = late.pid.clone();
    let taking = late.run_blocked_by(&in_the_way, &calls.acquire("k", 2, "late"));
    let stopped = StoppedBackend::stop(&pid);
    in_the_way.value("COMMIT");
    b.value(&calls.acquire("k", 3, "B"));
    drop(stopped);
    let (late, said) = taking.ends_well();
    assert!(said.contains("Held") && said.contains("\"B\""), "{said}");
    assert_eq!(late.value(&calls.holder("k")), "B");
}

/// One that has locked what it wants keeps everybody from it while it is stopped; and then finds that its own time is up.
#[test]
fn whoever_is_stopped_with_a_lease_locked_holds_it_up_and_does_not_prolong_it() {
    let (test_store, calls, [a, b]) = with_sessions();
    a.value(&calls.acquire("k/1", 1, "A"));
    a.value(&calls.acquire("k/2", 2, "A"));
    let second = "lease_hold WHERE key_id = (SELECT id FROM lease_key WHERE key = 'k/2')";
    let in_the_way = holding_up(&test_store, second);
    let pid = a.pid.clone();
    let both =
        "SELECT count(*) FROM lease_renew('default', ARRAY['k/1', 'k/2'], ARRAY['\\x01', '\\x02']::bytea[],
        ARRAY[1, 1]::bigint[], 60000) WHERE nth > 0";
    let renewing = a.run_blocked_by(&in_the_way, both);
    let stopped = StoppedBackend::stop(&pid);
    test_store.pass(30_000);
    let soon = calls.acquire("k/1", 3, "B").replace("60000)", "100)");
    assert_eq!(b.refusal(&soon).0, "55P03", "what it may be renewing is not granted");
    in_the_way.value("COMMIT");
    drop(stopped);
    let (a, said) = renewing.ends_well();
    assert_eq!(said, "0", "the moment behind the locks counts");
    b.value(&soon);
    assert_eq!(a.value(&calls.holder("k/1")), "B");
}
