//! What a fence keeps others from doing, and what it does not: a call that would end by force what it is on waits, until its
//! timeout, without being in the way of the holder's renewals, and then learns whose fence it is.

use fencehold_contract::job::{ChangeJobsRequest, JobAction, JobSelector};
use fencehold_contract::{RevokeLeasesRequest, RevokeTarget, StoreError};
use fencehold_core::job::{JobRefusal, JobState};
use fencehold_core::{Owner, Reason};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, complete, renew, run};
use crate::job_transactions::{attempt, call, cancel, meanwhile};
use crate::session::{Calls, Session};

/// A session with its transaction open under the fence of the job, which it has claimed.
fn fenced(fixture: &JobRaceFixture) -> Session {
    let work = fixture.session();
    run(&work, &claim(A));
    run(&work, "BEGIN");
    run(&work, &format!("SELECT fence_job('{JOB}', 1)"));
    work
}

/// R41.
#[test]
fn renewals_go_on_while_somebody_waits_to_call_a_fenced_job_off() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let (work, heart) = (fenced(&fixture), fixture.session());
    run(&heart, "SET lock_timeout = '5s'");
    let told = meanwhile(
        &work,
        || cancel(&*store, true),
        || {
            fixture.test_store.pass(20_000);
            assert_eq!(run(&heart, &renew(A, 1)).as_deref(), Some("30000"));
            run(&work, "COMMIT");
        },
    );
    assert_eq!(told, Ok(JobState::Cancelled));
}

/// R41, step by step: a call that locks a job in order to end its claim waits before it has locked anything.
#[test]
fn whoever_may_end_a_claim_waits_for_its_fence_and_locks_nothing_meanwhile() {
    let fixture = JobRaceFixture::new();
    let (work, heart, operator) = (fenced(&fixture), fixture.session(), fixture.session());
    let load = |ends: bool| {
        format!(
            "SELECT count(*) FROM job_load(ARRAY['{JOB}']::uuid[], 'default', NULL, NULL, false, {ends}, 60000)"
        )
    };
    assert_eq!(
        run(&heart, &load(false)).as_deref(),
        Some("2"),
        "a call that only leaves a note does not wait"
    );
    let operator = operator.run_blocked_by(&work, &load(true));
    run(&heart, "SET lock_timeout = '5s'");
    fixture.test_store.pass(20_000);
    assert_eq!(run(&heart, &renew(A, 1)).as_deref(), Some("30000"));
    run(&work, "COMMIT");
    operator.end().1.unwrap();
}

/// Calling a job off is a word to its holder, who hears it at its next renewal.
#[test]
fn whoever_only_asks_the_holder_to_stop_waits_for_no_fence() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    let work = fenced(&fixture);
    assert_eq!(cancel(&*store, false), Ok(JobState::Running));
    let renewed = block_on(store.jobs().unwrap().renew_attempts(&call(), vec![attempt(A, 1)])).unwrap();
    assert!(renewed.results[0].as_ref().unwrap().cancel_requested);
    run(&work, "COMMIT");
}

/// Its claim has run out, so there is no holder to ask: it would be ended, and the fence is in the way.
#[test]
fn whoever_calls_off_what_has_run_out_under_a_fence_does_not_keep_its_holder_from_completing_it() {
    let fixture = JobRaceFixture::new();
    let work = fenced(&fixture);
    // Only the holder finds out about a circle, and that not at once.
    run(&work, "SET LOCAL deadlock_timeout = '5s'");
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
            run(&work, &complete(A, 1));
            run(&work, "COMMIT");
        },
    );
    assert_eq!(told, Err(JobRefusal::Finished { state: JobState::Completed }));
}

#[test]
fn whoever_is_kept_from_forcing_something_is_told_by_which_transaction() {
    let fixture = JobRaceFixture::new();
    let (store, calls) = (fixture.test_store.store(), Calls(fixture.test_store.schema));
    let other = fixture.session();
    let work = fenced(&fixture);
    other.value(&calls.acquire("reports/daily", 1, "A"));
    work.value(&calls.fence("reports/daily", 1));
    let impatient = || call().with_timeout_ms(600);
    let names = |said: Result<(), StoreError>, what: &str| match said {
        Err(StoreError::Unavailable { message: why }) => {
            let by =
                format!("{what} has a fence on it: the transaction of backend {} has been open", work.pid);
            assert!(why.contains(&by), "{why}");
        }
        other => panic!("{other:?}"),
    };
    let (by, reason) = (Owner::new("P").unwrap(), Reason::new("stuck").unwrap());
    for which in [RevokeTarget::Owner(Owner::new("A").unwrap()), RevokeTarget::Prefix("reports/".to_owned())]
    {
        let request = RevokeLeasesRequest { target: which, by: by.clone(), reason: reason.clone() };
        names(block_on(store.revoke(&impatient(), request)).map(drop), "reports/daily");
    }
    names(block_on(store.advance(&impatient(), by.clone(), 1)).map(drop), "");
    let request = ChangeJobsRequest::new(
        JobSelector::Ids { job_ids: vec![JOB.parse().unwrap()] },
        JobAction::Cancel { reason: Some(reason), force: true },
        by,
    );
    names(
        block_on(store.jobs().unwrap().change_jobs(&impatient(), request)).map(drop),
        &format!("job {JOB}"),
    );
    // And all of it was left as it was.
    run(&work, "COMMIT");
    assert_eq!(fixture.state(), "2");
    assert_eq!(other.value(&calls.holder("reports/daily")), "A");
    assert_eq!(run(&other, &claim(B)), None);
}
