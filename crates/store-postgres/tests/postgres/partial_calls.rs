//! Calls of several statements, the first of which was carried out: the response is true of all of them.

use fencehold_contract::job::{ClaimJobsRequest, NewJob};
use fencehold_contract::{CallContext, StoreError};
use fencehold_core::job::{JobId, JobKind, JobOptions, QueueName};
use fencehold_core::{HoldId, Namespace, Owner};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_races::{A, JOB, JobRaceFixture, claim, run};

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

fn new_job(id: &str) -> NewJob {
    NewJob::new(JobId::parse(id).unwrap(), QueueName::new("q").unwrap(), JobKind::new("work").unwrap(), "{}")
}

#[test]
fn an_enqueue_that_was_carried_out_in_part_is_not_said_to_have_done_nothing() {
    let fixture = JobRaceFixture::new();
    let other = fixture.session();
    run(&other, "BEGIN");
    // Another session has locked the job that is there already, so whether it is the same cannot be known.
    run(&other, "SELECT FROM job_ready FOR UPDATE");
    let jobs = vec![new_job("019a7afd-1e00-7000-8000-0000000000a1"), new_job(JOB)];
    let store = fixture.test_store.store();
    match block_on(store.jobs().unwrap().enqueue(&call().with_timeout_ms(3_000), jobs)) {
        Err(StoreError::OutcomeUnknown { .. }) => {}
        other => panic!("{other:?}"),
    }
    run(&other, "COMMIT");
    assert_eq!(run(&other, "SELECT count(*) FROM job_body").as_deref(), Some("2"), "one was made");
}

#[test]
fn a_claimed_job_reaches_its_asker_although_nobody_can_be_told_that_its_room_is_not_needed() {
    let fixture = JobRaceFixture::new();
    let other = fixture.session();
    assert_eq!(run(&other, &claim(A)).as_deref(), Some("1"));
    let store = fixture.test_store.store();
    let urgent = NewJob {
        options: JobOptions { priority: 5, ..JobOptions::default() },
        preempt_within_ms: Some(10_000),
        ..new_job("019a7afd-1e00-7000-8000-0000000000a1")
    };
    block_on(store.jobs().unwrap().enqueue(&call(), vec![urgent.clone()])).unwrap();
    assert_eq!(run(&other, "SELECT count(*) FROM job_running WHERE asked IS NOT NULL").as_deref(), Some("1"));
    run(&other, "BEGIN");
    run(&other, "SELECT FROM job_running FOR UPDATE");
    let request = ClaimJobsRequest {
        queues: vec![(QueueName::new("q").unwrap(), 1)],
        limit: 1,
        hold_id: HoldId::from_random([9; 16]),
        owner: Owner::new("B").unwrap(),
        ttl_ms: 30_000,
        wait_ms: 0,
        waited_before_ms: 0,
    };
    let claimed = block_on(store.jobs().unwrap().claim(&call().with_timeout_ms(3_000), request)).unwrap();
    assert_eq!(claimed.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [urgent.id]);
}

/// A refusal names the job that a token is of only within the caller's own namespace.
#[test]
fn a_token_of_another_namespace_names_no_job() {
    let fixture = JobRaceFixture::new();
    let session = fixture.session();
    run(&session, &claim(A));
    assert_eq!(run(&session, "SELECT job_under('default', 1)").as_deref(), Some(JOB));
    assert_eq!(run(&session, "SELECT job_under('other', 1)"), None);
}
