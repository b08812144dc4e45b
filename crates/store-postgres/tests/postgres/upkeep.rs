//! The background work is one handle's at a time, and idle handles cost little.

use std::sync::Arc;

use fencehold_contract::LeaseStore as _;
use fencehold_contract::clock::SystemClock;
use fencehold_contract::job::{ClaimJobsRequest, JobStore as _};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::{call, claim_request};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JobRaceFixture, claim};
use crate::session::{Session, until, with_sessions};

/// Whether the work is this handle's now; and in how many milliseconds it asks again.
fn ask(session: &Session, handle: u8) -> (bool, u64) {
    let asked =
        session.value(&format!("SELECT is_mine || '/' || next_ms FROM maintenance_turn('jobs', {handle})"));
    let (is_mine, next_ms) = asked.split_once('/').unwrap();
    (is_mine == "true", next_ms.parse().unwrap())
}

#[test]
fn one_handle_has_the_turn_until_it_stops_asking_and_others_ask_one_after_the_other() {
    let (_test_store, _, [session]) = with_sessions();
    assert!(ask(&session, 1).0, "no other handle has it");
    let [second, third, fourth] = [2, 3, 4].map(|handle| ask(&session, handle));
    assert!(!second.0 && !third.0 && !fourth.0);
    assert!(
        second.1 < third.1 && third.1 < fourth.1,
        "each at a moment of its own: {second:?} {third:?} {fourth:?}"
    );
    for _ in 0..20 {
        assert!(ask(&session, 5).1 <= 2_000, "however many there are");
    }
    // As if its turn had ended, or the clock had been set back.
    for ends in ["0", "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint + 3600000"] {
        session.value(&format!("SELECT setval('jobs_turn_until', greatest({ends}, 1))"));
        assert!(ask(&session, 6).0, "{ends}");
        session.value("SELECT setval('jobs_turn_handle', 1)");
    }
    assert!(!ask(&session, 6).0, "it is another's again");
    let other = session.value("SELECT is_mine FROM maintenance_turn('leases', 6)");
    assert_eq!(other, "t", "each part has a turn of its own");
}

/// A handle that asks while another is asking does not wait for it.
#[test]
fn a_handle_that_asks_beside_another_comes_again() {
    let (_test_store, _, [first, second]) = with_sessions();
    first.value("BEGIN");
    assert!(ask(&first, 1).0);
    assert!(!ask(&second, 2).0);
    first.value("COMMIT");
}

#[test]
fn another_handle_goes_on_with_the_work_when_the_one_that_did_it_is_gone() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let first = fixture.test_store.store();
    block_on(first.jobs().unwrap().list_queues(&call())).unwrap();
    until("the first has the turn", || {
        session.value("SELECT coalesce(pg_sequence_last_value('jobs_turn_handle'), 0)") != "0"
    });
    let had_it = session.value("SELECT last_value FROM jobs_turn_handle");
    let second = fixture.test_store.other();
    block_on(second.jobs().unwrap().list_queues(&call())).unwrap();
    session.value(&claim(A));
    block_on(first.close());
    fixture.test_store.pass(30_000);
    fixture.until_swept();
    assert_ne!(session.value("SELECT last_value FROM jobs_turn_handle"), had_it);
}

/// A part of the work that cannot say whether it has anything to do is done, and its failure is on record.
#[test]
fn a_part_that_fails_is_reported_and_keeps_no_other_back() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    session.value("ALTER FUNCTION job_schedules_due RENAME TO job_schedules_due_no_more");
    assert_eq!(session.value("SELECT schedules FROM job_work_due()"), "t");
    session.value(&claim(A));
    fixture.test_store.pass(30_000);
    fixture.sweep();
    fixture.until_swept();
    until("it is on record", || {
        session.value("SELECT count(*) FROM maintenance_errors() WHERE part = 'schedules'") == "1"
    });
}

/// Ten idle workers, each with a claim in line. What they send is counted by the server, and the time by its clock: a slow machine
/// only makes it less.
#[test]
fn ten_idle_workers_send_fewer_than_two_statements_a_second_each() {
    const HANDLES: usize = 10;
    let (test_store, _, [session]) = with_sessions();
    let mut url = test_store.url();
    url.session_options = Some("-c track_functions=pl".to_owned());
    let open = |_| Arc::new(PostgresStore::open(&url, Arc::new(SystemClock)).unwrap());
    let handles: Vec<_> = (0..HANDLES).map(open).collect();
    let calls = || {
        session.number(
            "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE schemaname = current_schema()
             AND funcname IN ('upkeep', 'job_work_due', 'job_tidy', 'lease_sweep', 'job_line_up', 'job_claim', 'namespace_count', 'job_tell_lines', 'party_lives')",
        )
    };
    std::thread::scope(|scope| {
        for (nth, handle) in (1..).zip(&handles) {
            let wait = ClaimJobsRequest { wait_ms: 600_000, ..claim_request("q", nth, "A") };
            scope.spawn(move || drop(block_on(handle.claim(&call(), wait))));
        }
        let in_line = "SELECT count(*) FROM job_waiter";
        until("all are in line", || session.value(in_line) == HANDLES.to_string());
        // What is done once in a while at the beginning is over after some rounds.
        let rounds = |least: u64| {
            let rounds = || {
                session.number(
                    "SELECT coalesce(sum(calls), 0) FROM pg_stat_user_functions WHERE funcname = 'upkeep'",
                )
            };
            let first = rounds();
            until("upkeep goes on", || {
                session.value("SELECT pg_sleep(0.01)");
                rounds() >= first + least
            });
        };
        rounds(40);
        let now_ms = || session.number("SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)");
        let (before, began_ms) = (calls(), now_ms());
        rounds(60);
        let (sent, seconds) = (calls() - before, (now_ms() - began_ms) as f64 / 1_000.0);
        let each = sent as f64 / seconds / HANDLES as f64;
        for handle in &handles {
            block_on(handle.close());
        }
        assert!(each <= 2.0, "{each:.2} a second each: {sent} in {seconds:.1} s");
        println!("{each:.2} statements a second each, of {HANDLES}");
    });
}
