//! What a fence keeps others from doing, and what it does not: a call that would end by force what it is on waits, until its
//! timeout, without being in the way of the holder's renewals, and then learns whose fence it is.

use fencehold_contract::{RevokeTarget, StoreError};
use fencehold_core::job::{JobRefusal, JobState};
use fencehold_test_servers::calls::{OneByOne as _, call, owner, revoke_request, unavailable};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, complete, renew};
use crate::job_transactions::{attempt, cancel, cancelling, meanwhile};
use crate::session::{Calls, Session};

/// A session with its transaction open under the fence of the job, which it has claimed; and others.
fn fenced<const N: usize>() -> (JobRaceFixture, Session, [Session; N]) {
    let (fixture, others) = JobRaceFixture::with_sessions();
    let work = fixture.session();
    work.value(&claim(A));
    work.value("BEGIN");
    work.value(&format!("SELECT fence_job('{JOB}', 1)"));
    (fixture, work, others)
}

/// R41.
#[test]
fn renewals_go_on_while_somebody_waits_to_call_a_fenced_job_off() {
    let (fixture, work, [heart]) = fenced();
    let store = fixture.test_store.store();
    heart.value("SET lock_timeout = '5s'");
    let told = meanwhile(
        &work,
        || cancel(&*store, true),
        || {
            fixture.test_store.pass(20_000);
            assert_eq!(heart.value(&renew(A, 1)), "30000");
            work.value("COMMIT");
        },
    );
    assert_eq!(told, Ok(JobState::Cancelled));
}

/// R41, step by step: a call that locks a job in order to end its claim waits before it has locked anything.
#[test]
fn whoever_may_end_a_claim_waits_for_its_fence_and_locks_nothing_meanwhile() {
    let (fixture, work, [heart, operator]) = fenced();
    let load = |ends: bool| {
        format!(
            "SELECT count(*) FROM job_load(ARRAY['{JOB}']::uuid[], 'default', NULL, NULL, false, {ends}, 60000)"
        )
    };
    assert_eq!(heart.value(&load(false)), "2", "a call that only leaves a note does not wait");
    let operator = operator.run_blocked_by(&work, &load(true));
    heart.value("SET lock_timeout = '5s'");
    fixture.test_store.pass(20_000);
    assert_eq!(heart.value(&renew(A, 1)), "30000");
    work.value("COMMIT");
    operator.value();
}

/// Calling a job off is a word to its holder, who hears it at its next renewal.
#[test]
fn whoever_only_asks_the_holder_to_stop_waits_for_no_fence() {
    let (fixture, work, []) = fenced();
    let store = fixture.test_store.store();
    assert_eq!(cancel(&*store, false), Ok(JobState::Running));
    assert!(store.renew_attempt(&attempt(A, 1)).unwrap().cancel_requested);
    work.value("COMMIT");
}

/// Its claim has run out, so there is no holder to ask: it would be ended, and the fence is in the way.
#[test]
fn whoever_calls_off_what_has_run_out_under_a_fence_does_not_keep_its_holder_from_completing_it() {
    let (fixture, work, []) = fenced();
    // Only the holder finds out about a circle, and that not at once.
    work.value("SET LOCAL deadlock_timeout = '5s'");
    let database = &fixture.test_store.database.name;
    fixture
        .watch
        .run(&format!("ALTER DATABASE {database} SET deadlock_timeout = '1h'"));
    let store = fixture.test_store.store();
    fixture.test_store.pass(30_000);
    let told = meanwhile(
        &work,
        || cancel(&*store, false),
        || {
            work.value(&complete(A, 1));
            work.value("COMMIT");
        },
    );
    assert_eq!(told, Err(JobRefusal::Finished { state: JobState::Completed }));
}

#[test]
fn whoever_is_kept_from_forcing_something_is_told_by_which_transaction() {
    let (fixture, work, [other]) = fenced();
    let (store, calls) = (fixture.test_store.store(), Calls(fixture.test_store.schema));
    // It is connected: what it has of patience is for what follows.
    block_on(store.status(&call())).unwrap();
    other.value(&calls.acquire("reports/daily", 1, "A"));
    work.value(&calls.fence("reports/daily", 1));
    let impatient = call().with_timeout_ms(1_500);
    let names = |said: Result<(), StoreError>, what: &str| {
        let by = format!("{what} has a fence on it: the transaction of backend {} has been open", work.pid);
        let why = unavailable(said);
        assert!(why.contains(&by), "{why}");
    };
    for which in [RevokeTarget::Owner(owner("A")), RevokeTarget::Prefix("reports/".to_owned())] {
        names(block_on(store.revoke(&impatient, revoke_request(which))).map(drop), "reports/daily");
    }
    names(block_on(store.advance(&impatient, owner("P"), 1)).map(drop), "");
    let cancelled = block_on(store.jobs().unwrap().change_jobs(&impatient, cancelling(true)));
    names(cancelled.map(drop), &format!("job {JOB}"));
    // And all of it was left as it was.
    work.value("COMMIT");
    assert_eq!(fixture.state(), "2");
    assert_eq!(other.value(&calls.holder("reports/daily")), "A");
    assert_eq!(other.value(&claim(B)), "");
}
