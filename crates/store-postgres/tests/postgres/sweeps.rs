//! What is done in the background, and the clock that it goes by.

use fencehold_test_store::TestStore as _;

use crate::job_races::{A, JOB, JobRaceFixture, claim, complete, first, run};
use crate::session::Calls;

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// R03: a sweep that has waited for a renewal goes by the clock as it is then.
#[test]
fn a_sweep_that_waited_for_a_renewal_takes_none_of_it_away() {
    let fixture = JobRaceFixture::new();
    let (holder, sweeper) = (fixture.session(), fixture.session());
    let calls = Calls(fixture.test_store.schema);
    holder.value(&calls.acquire("k", 1, "A"));
    fixture.test_store.pass(20_000);
    holder.value(&calls.renew("k", 1, 1));
    // The moment at which the sweep looks at it; it does not know of the renewal.
    fixture.test_store.pass(10_000);
    run(&holder, "BEGIN");
    run(&holder, "SELECT FROM lease_hold FOR UPDATE");
    let sweeper = sweeper.run_blocked_by(&holder, &calls.sweep());
    fixture.test_store.pass(5_000);
    assert_eq!(holder.value(&calls.renew("k", 1, 1)), "1");
    run(&holder, "COMMIT");
    sweeper.end().1.unwrap();
    assert_eq!(run(&holder, "SELECT deadline_ms - now_ms() FROM lease_hold").as_deref(), Some("30000"));
}

/// R21, of leases that no caller asks about.
#[test]
fn a_sweep_notices_that_the_clock_was_set_back() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    let calls = Calls(fixture.test_store.schema);
    session.value(&calls.acquire("k", 1, "A"));
    fixture.test_store.shift(-HOUR_MS);
    session.value(&calls.sweep());
    fixture.test_store.pass(30_000);
    session.value(&calls.sweep());
    assert_eq!(run(&session, "SELECT count(*) FROM lease_hold").as_deref(), Some("0"), "it has run out");
}

#[test]
fn a_finished_job_is_kept_while_its_unique_key_is_taken() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    run(&session, &claim(A));
    run(&session, &complete(A, 1));
    // As if it had been enqueued with a key, for a day.
    run(
        &session,
        &format!("INSERT INTO job_unique VALUES ('default', '{JOB}', '{JOB}', '{JOB}', now_ms() + {DAY_MS})"),
    );
    let tidied = || {
        run(&session, "SELECT job_tidy(1000, 10)");
        run(&session, "SELECT count(*) FROM job_body").unwrap()
    };
    fixture.test_store.pass(DAY_MS - 1);
    assert_eq!(tidied(), "1", "the same request sent again gets this job");
    fixture.test_store.pass(1);
    assert_eq!(tidied(), "0");
}

/// A schedule that is set again while it fires stays as its firing leaves it: it does not fire twice.
#[test]
fn whoever_sets_a_schedule_that_is_just_firing_waits_for_that() {
    let fixture = JobRaceFixture::new();
    let (sweeper, user) = (fixture.session(), fixture.session());
    run(
        &sweeper,
        "INSERT INTO job_schedule (namespace, name, spec, next_ms) VALUES ('default', 'nightly', '{}', now_ms())",
    );
    run(&sweeper, "BEGIN");
    assert!(run(&sweeper, "SELECT * FROM job_schedules_due(10)").is_some(), "it is due");
    let user = user.run_blocked_by(
        &sweeper,
        "SELECT schedule::jsonb->>'next_ms' FROM job_schedule_hold('default', 'nightly')",
    );
    run(&sweeper, "UPDATE job_schedule SET next_ms = 7, last_ms = 6");
    run(&sweeper, "COMMIT");
    assert_eq!(first(user.end().1), Ok(Some("7".to_owned())));
}

/// A user's transaction may be open for long: no sweep waits for it.
#[test]
fn a_finished_job_whose_key_is_just_being_taken_over_is_forgotten_later() {
    let fixture = JobRaceFixture::new();
    let (session, user) = (fixture.session(), fixture.session());
    run(
        &session,
        "SELECT enqueue_job('q', 'work', '1', unique_key => 'u', unique_window => interval '1 minute')",
    );
    let id = run(&session, "SELECT job FROM job_unique").unwrap();
    run(&session, &format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id <> '{id}'))"));
    run(&session, "DELETE FROM job_ready");
    run(
        &session,
        "INSERT INTO job_settled (arrival, lane, state, since_ms, keeps) SELECT arrival, lane, 4, 0, false FROM job_body",
    );
    fixture.test_store.pass(60_000);
    run(&user, "BEGIN");
    run(&user, &format!("UPDATE job_unique SET job = '{JOB}', until_ms = until_ms + 60000"));
    run(&session, "SET lock_timeout = '5s'");
    let tidied = |most: u32| {
        let more = run(&session, &format!("SELECT job_tidy(1000, {most})"));
        (more.unwrap(), run(&session, "SELECT count(*) FROM job_body").unwrap())
    };
    assert_eq!(tidied(1), ("f".to_owned(), "1".to_owned()), "it is not asked for again at once either");
    run(&user, "COMMIT");
    assert_eq!(tidied(10), ("f".to_owned(), "0".to_owned()));
    assert_eq!(run(&session, "SELECT count(*) FROM job_unique").as_deref(), Some("1"), "that is the other's");
}
