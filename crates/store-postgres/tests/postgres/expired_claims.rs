//! What a claim that runs out leaves of its job: the crash is counted, the job's place is kept, and the one who comes late takes
//! the crash back.

use fencehold_contract::job::Report;
use fencehold_core::job::JobState;
use fencehold_test_servers::calls::{OneByOne as _, call};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, B, JOB, JobRaceFixture, claim, complete};
use crate::job_transactions::attempt;

const LATER: &str = "019a7afd-1e00-7000-8000-000000000002";

/// The arrival of a job: its place among all jobs, for life.
fn place(fixture: &JobRaceFixture, job: &str) -> String {
    fixture.watch.value(&format!("SELECT arrival FROM job_body WHERE id = '{job}'"))
}

fn standing(fixture: &JobRaceFixture) -> (JobState, u16, u16) {
    let store = fixture.test_store.store();
    let detail = block_on(store.jobs().unwrap().get_job(&call(), JOB.parse().unwrap()));
    let job = detail.unwrap().unwrap().job;
    (job.state, job.failure_count, job.crash_count)
}

/// The claim that comes next: which job it takes, and how often that has crashed.
fn next(who: (&str, &str)) -> String {
    claim(who).replace("SELECT token", "SELECT id || ' ' || crashes || ' ' || failures || ' ' || attempt")
}

#[test]
fn a_job_whose_claims_run_out_counts_each_crash_and_stands_at_its_place_again() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    let first_place = place(&fixture, JOB);
    session.value(&format!("SELECT enqueue_job('q', 'work', '{{}}', id => '{LATER}')"));
    for crashes in 0..3 {
        let attempt = crashes + 1;
        assert_eq!(
            session.value(&next(A)),
            format!("{JOB} {crashes} 0 {attempt}"),
            "before the one that came later"
        );
        fixture.take_over();
        assert_eq!(place(&fixture, JOB), first_place);
        assert_eq!(standing(&fixture).2, crashes + 1);
    }
}

#[test]
fn a_job_that_has_crashed_and_failed_keeps_both_counts_when_another_claim_runs_out() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    session.value(&claim(A));
    fixture.take_over();
    // As if it had failed twice before.
    session.value("UPDATE job_past SET failures = 2");
    assert_eq!(session.value(&next(B)), format!("{JOB} 1 2 2"));
    fixture.take_over();
    assert_eq!(standing(&fixture), (JobState::Queued, 2, 2));
}

/// Late completion: the holder was not dead after all.
#[test]
fn a_completion_after_the_claim_ran_out_takes_the_crash_back() {
    let fixture = JobRaceFixture::new();
    let store = fixture.test_store.store();
    fixture.session().value(&claim(A));
    fixture.take_over();
    assert_eq!(standing(&fixture).2, 1);
    let said = store.report_one(&attempt(A, 1), Report::Complete { result: None }).unwrap();
    assert!(said.late);
    assert_eq!(standing(&fixture), (JobState::Completed, 0, 0));
}

/// A claim that has run out and was not swept yet is completed in a user's transaction: nothing has crashed.
#[test]
fn a_completion_before_the_sweep_leaves_no_crash() {
    let (fixture, [session]) = JobRaceFixture::with_sessions();
    session.value(&claim(A));
    fixture.test_store.pass(30_000);
    session.value(&complete(A, 1));
    assert_eq!(standing(&fixture), (JobState::Completed, 0, 0));
}
