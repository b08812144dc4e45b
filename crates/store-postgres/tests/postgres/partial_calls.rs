//! Calls of several statements, the first of which was carried out: the response is true of all of them.

use fencehold_contract::StoreError;
use fencehold_contract::job::NewJob;
use fencehold_core::job::JobOptions;
use fencehold_test_servers::calls::{OneByOne as _, call, claim_request, new_job};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JOB, JobRaceFixture, claim};

const OTHER: &str = "019a7afd-1e00-7000-8000-0000000000a1";

fn job(id: &str) -> NewJob {
    new_job(id.parse().unwrap(), "q", "{}")
}

#[test]
fn an_enqueue_that_was_carried_out_in_part_is_not_said_to_have_done_nothing() {
    let (fixture, [other]) = JobRaceFixture::with_sessions();
    other.value("BEGIN");
    // Another session has locked the job that is there already, so whether it is the same cannot be known.
    other.value("SELECT FROM job_ready FOR UPDATE");
    let jobs = vec![job(OTHER), job(JOB)];
    let store = fixture.test_store.store();
    let answer = block_on(store.jobs().unwrap().enqueue(&call().with_timeout_ms(3_000), jobs));
    assert!(matches!(answer, Err(StoreError::OutcomeUnknown { .. })), "{answer:?}");
    other.value("COMMIT");
    assert_eq!(other.value("SELECT count(*) FROM job_body"), "2", "one was made");
}

#[test]
fn a_claimed_job_reaches_its_asker_although_nobody_can_be_told_that_its_room_is_not_needed() {
    let (fixture, [other]) = JobRaceFixture::with_sessions();
    assert_eq!(other.value(&claim(A)), "1");
    let store = fixture.test_store.store();
    let urgent = NewJob {
        options: JobOptions { priority: 5, ..JobOptions::default() },
        preempt_within_ms: Some(10_000),
        ..job(OTHER)
    };
    store.enqueue_one(urgent.clone()).unwrap();
    assert_eq!(other.value("SELECT count(*) FROM job_running WHERE asked IS NOT NULL"), "1");
    other.value("BEGIN");
    other.value("SELECT FROM job_running FOR UPDATE");
    let request = claim_request("q", 9, "B");
    let claimed = block_on(store.jobs().unwrap().claim(&call().with_timeout_ms(3_000), request)).unwrap();
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [urgent.id]);
}

/// A refusal names the job that a token is of only within the caller's own namespace.
#[test]
fn a_token_of_another_namespace_names_no_job() {
    let (_fixture, [session]) = JobRaceFixture::with_sessions();
    session.value(&claim(A));
    assert_eq!(session.value("SELECT job_under('default', 1)"), JOB);
    assert_eq!(session.value("SELECT job_under('other', 1)"), "");
}
