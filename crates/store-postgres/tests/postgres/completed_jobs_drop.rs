//! `completed_jobs=drop`: what is completed is gone, and nothing else is forgotten with it.

use fencehold_contract::job::{AttemptRef, ClaimJobsRequest, NewJob, Report, WaitRequest};
use fencehold_contract::{CompletedJobs, JobStore as _};
use fencehold_core::HoldId;
use fencehold_core::job::{JobId, JobState};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::{OneByOne as _, call, claim_request, hold_id, new_job, unique};
use fencehold_test_store::block_on;

use crate::cluster::fresh_schema;
use crate::open_with;
use crate::session::until;

const COMPLETE: Report = Report::Complete { result: None };

fn store_in(schema: &str) -> PostgresStore {
    open_with(schema, |url| url.completed = CompletedJobs::Drop)
}

fn job(nth: u8) -> NewJob {
    new_job(JobId::from_random(1_800_000_000_000, [nth; 10]), "q", "1")
}

/// Enqueues a job and takes it.
fn begun(store: &PostgresStore, job: NewJob) -> AttemptRef {
    let hold_id = HoldId::from_random(*job.id.as_bytes());
    store.enqueue_one(job).unwrap();
    store.claim_one(ClaimJobsRequest { hold_id, ..claim_request("q", 0, "me") })
}

fn is_there(store: &PostgresStore, attempt: &AttemptRef) -> bool {
    block_on(store.get_job(&call(), attempt.job_id)).unwrap().is_some()
}

#[test]
fn a_completed_job_is_gone_and_the_same_word_again_gets_the_same_answer() {
    let store = store_in(&fresh_schema());
    let attempt = begun(&store, job(1));
    let said = store.report_one(&attempt, COMPLETE).unwrap();
    assert_eq!((said.state, said.late), (JobState::Completed, false));
    assert!(!is_there(&store, &attempt));
    assert_eq!(store.report_one(&attempt, COMPLETE).unwrap(), said);
    let stranger = AttemptRef { hold_id: hold_id(9), ..attempt };
    store.report_one(&stranger, COMPLETE).unwrap_err();
}

#[test]
fn a_job_of_which_there_is_more_to_tell_is_kept() {
    let store = store_in(&fresh_schema());
    let unique = unique("only", 60_000);
    let with_key = begun(&store, NewJob { unique: unique.clone(), ..job(1) });
    store.report_one(&with_key, COMPLETE).unwrap();
    assert!(is_there(&store, &with_key), "its key names it");
    assert_eq!(store.enqueue_one(NewJob { unique, ..job(2) }).unwrap().job_id, with_key.job_id);

    let with_note = begun(&store, job(3));
    store
        .report_one(&with_note, Report::Checkpoint { checkpoint: b"half".to_vec() })
        .unwrap();
    store.report_one(&with_note, COMPLETE).unwrap();
    assert!(is_there(&store, &with_note), "it left a checkpoint");

    let tried = begun(&store, job(4));
    store.report_one(&tried, Report::Release {}).unwrap();
    let retried = begun(&store, job(4));
    store.report_one(&retried, COMPLETE).unwrap();
    assert!(is_there(&store, &retried), "it has an earlier attempt");
}

#[test]
fn whoever_waits_for_the_end_of_a_job_is_told_how_it_ended() {
    let schema = fresh_schema();
    let store = store_in(&schema);
    let attempt = begun(&store, job(1));
    let request = WaitRequest { id: attempt.job_id, wait_ms: 60_000 };
    let waited = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(store.wait_for_job(&call(), request)));
        let awaited = format!("SELECT count(*) FROM {schema}.job_awaited");
        until("awaited", || crate::cluster().shared().value(&awaited) != "0");
        store.report_one(&attempt, COMPLETE).unwrap();
        waiting.join().unwrap()
    });
    assert_eq!(waited.unwrap().unwrap().job.state, JobState::Completed);
}
