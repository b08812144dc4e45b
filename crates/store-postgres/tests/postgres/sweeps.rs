//! What is done in the background, and the clock that it goes by.

use fencehold_test_store::TestStore as _;

use crate::job_races::{A, JOB, JobRaceFixture, claim, complete};
use crate::session::Calls;

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// R03: a sweep that has waited for a renewal goes by the clock as it is then.
#[test]
fn a_sweep_that_waited_for_a_renewal_takes_none_of_it_away() {
    let (fixture, [holder, sweeper]) = JobRaceFixture::with_sessions();
    let calls = Calls(fixture.test_store.schema);
    holder.value(&calls.acquire("k", 1, "A"));
    fixture.test_store.pass(20_000);
    holder.value(&calls.renew("k", 1, 1));
    // The moment at which the sweep looks at it; it does not know of the renewal.
    fixture.test_store.pass(10_000);
    holder.value("BEGIN");
    holder.value("SELECT FROM lease_hold FOR UPDATE");
    let sweeper = sweeper.run_blocked_by(&holder, &calls.sweep());
    fixture.test_store.pass(5_000);
    assert_eq!(holder.value(&calls.renew("k", 1, 1)), "1");
    holder.value("COMMIT");
    sweeper.value();
    assert_eq!(holder.value("SELECT deadline_ms - now_ms() FROM lease_hold"), "30000");
}

/// R21, of leases that no caller asks about.
#[test]
fn a_sweep_notices_that_the_clock_was_set_back() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let calls = Calls(fixture.test_store.schema);
    session.value(&calls.acquire("k", 1, "A"));
    fixture.test_store.shift(-HOUR_MS);
    session.value(&calls.sweep());
    fixture.test_store.pass(30_000);
    session.value(&calls.sweep());
    assert_eq!(session.value("SELECT count(*) FROM lease_hold"), "0", "it has run out");
}

#[test]
fn a_finished_job_is_kept_while_its_unique_key_is_taken() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    session.value(&claim(A));
    session.value(&complete(A, 1));
    // As if it had been enqueued with a key, for a day.
    session.value(&format!(
        "INSERT INTO job_unique VALUES ('default', '{JOB}', '{JOB}', '{JOB}', now_ms() + {DAY_MS})"
    ));
    let tidied = || {
        session.value("SELECT job_tidy(1000, 10)");
        session.value("SELECT count(*) FROM job_body")
    };
    fixture.test_store.pass(DAY_MS - 1);
    assert_eq!(tidied(), "1", "the same request sent again gets this job");
    fixture.test_store.pass(1);
    assert_eq!(tidied(), "0");
}

/// A schedule that is set again while it fires stays as its firing leaves it: it does not fire twice.
#[test]
fn whoever_sets_a_schedule_that_is_just_firing_waits_for_that() {
    let (_fixture, [sweeper, user]) = JobRaceFixture::with_sessions();
    sweeper.value("INSERT INTO job_schedule (namespace, name, spec, next_ms) VALUES ('default', 'nightly', '{}', now_ms())");
    sweeper.value("BEGIN");
    assert_ne!(sweeper.value("SELECT * FROM job_schedules_due(10)"), "", "it is due");
    let user = user.run_blocked_by(
        &sweeper,
        "SELECT schedule::jsonb->>'next_ms' FROM job_schedule_hold('default', 'nightly')",
    );
    sweeper.value("UPDATE job_schedule SET next_ms = 7, last_ms = 6");
    sweeper.value("COMMIT");
    assert_eq!(user.value(), "7");
}

/// A user's transaction may be open for long: no sweep waits for it.
#[test]
fn a_finished_job_whose_key_is_just_being_taken_over_is_forgotten_later() {
    let (fixture, [session, user]) = JobRaceFixture::with_sessions();
    session.value(
        "SELECT enqueue_job('q', 'work', '1', unique_key => 'u', unique_window => interval '1 minute')",
    );
    let id = session.value("SELECT job FROM job_unique");
    session.value(&format!("SELECT job_forget(ARRAY(SELECT arrival FROM job_body WHERE id <> '{id}'))"));
    session.value("DELETE FROM job_ready");
    session.value("INSERT INTO job_settled (arrival, lane, state, since_ms, keeps) SELECT arrival, lane, 4, 0, false FROM job_body");
    fixture.test_store.pass(60_000);
    user.value("BEGIN");
    user.value(&format!("UPDATE job_unique SET job = '{JOB}', until_ms = until_ms + 60000"));
    session.value("SET lock_timeout = '5s'");
    let tidied = |most: u32| {
        let more = session.value(&format!("SELECT job_tidy(1000, {most})"));
        [more, session.value("SELECT count(*) FROM job_body")]
    };
    assert_eq!(tidied(1), ["f", "1"], "it is not asked for again at once either");
    user.value("COMMIT");
    assert_eq!(tidied(10), ["f", "0"]);
    assert_eq!(session.value("SELECT count(*) FROM job_unique"), "1", "that is the other's");
}
