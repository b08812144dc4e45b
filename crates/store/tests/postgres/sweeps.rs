//! What is done in the background, and the clock that it goes by.

use fencehold_store::conformance::Arena as _;

use crate::job_races::{A, JOB, Stage, claim, complete, run};
use crate::session::Calls;

const HOUR_MS: i64 = 60 * 60 * 1000;
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// R03: a sweep that has waited for a renewal goes by the clock as it is then.
#[test]
fn a_sweep_that_waited_for_a_renewal_takes_none_of_it_away() {
    let stage = Stage::new();
    let (holder, sweeper) = (stage.session(), stage.session());
    let calls = Calls(stage.arena.schema);
    holder.value(&calls.acquire("k", 1, "A"));
    stage.arena.pass(20_000);
    holder.value(&calls.renew("k", 1, 1));
    // The moment at which the sweep looks at it; it does not know of the renewal.
    stage.arena.pass(10_000);
    run(&holder, "BEGIN");
    run(&holder, "SELECT FROM lease_hold FOR UPDATE");
    let sweeper = sweeper.run_blocked_by(&holder, &calls.sweep());
    stage.arena.pass(5_000);
    assert_eq!(holder.value(&calls.renew("k", 1, 1)), "1");
    run(&holder, "COMMIT");
    sweeper.end().1.unwrap();
    assert_eq!(run(&holder, "SELECT deadline_ms - now_ms() FROM lease_hold").as_deref(), Some("30000"));
}

/// R21, of leases that nobody asks about.
#[test]
fn a_sweep_notices_that_the_clock_was_set_back() {
    let stage = Stage::new();
    let session = stage.session();
    let calls = Calls(stage.arena.schema);
    session.value(&calls.acquire("k", 1, "A"));
    stage.arena.shift(-HOUR_MS);
    session.value(&calls.sweep());
    stage.arena.pass(30_000);
    session.value(&calls.sweep());
    assert_eq!(run(&session, "SELECT count(*) FROM lease_hold").as_deref(), Some("0"), "it has run out");
}

#[test]
fn a_finished_job_is_kept_while_its_unique_key_is_taken() {
    let stage = Stage::new();
    let session = stage.session();
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
    stage.arena.pass(DAY_MS - 1);
    assert_eq!(tidied(), "1", "whoever sends the same again is told of this job");
    stage.arena.pass(1);
    assert_eq!(tidied(), "0");
}
