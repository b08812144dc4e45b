//! `completed_jobs=drop`: what is completed is gone, and nothing else is forgotten with it.

use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::job::{
    AttemptRef, AttemptReport, ClaimJobsRequest, NewJob, Report, Unique, WaitRequest,
};
use fencehold_contract::{CallContext, CompletedJobs, JobStore as _};
use fencehold_core::job::{JobId, JobKind, JobRefusal, JobState, QueueName, ReportedAttempt, UniqueKey};
use fencehold_core::{HoldId, Namespace, Owner};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_store::block_on;

use crate::cluster::fresh_schema;

const COMPLETE: Report = Report::Complete { result: None };

fn call() -> CallContext {
    CallContext::new(Namespace::default()).with_timeout_ms(60_000)
}

fn store() -> PostgresStore {
    store_in(&fresh_schema())
}

fn store_in(schema: &str) -> PostgresStore {
    let mut url = crate::cluster().url(schema);
    url.completed = CompletedJobs::Drop;
    PostgresStore::open(&url, Arc::new(SystemClock)).unwrap()
}

fn job(nth: u8) -> NewJob {
    let id = JobId::from_random(1_800_000_000_000, [nth; 10]);
    NewJob::new(id, QueueName::new("q").unwrap(), JobKind::new("k").unwrap(), "1")
}

/// Enqueues a job and takes it.
fn begun(store: &PostgresStore, job: NewJob) -> AttemptRef {
    let hold = HoldId::from_random(*job.id.as_bytes());
    block_on(store.enqueue(&call(), vec![job])).unwrap()[0].clone().unwrap();
    let request = ClaimJobsRequest {
        queues: vec![(QueueName::new("q").unwrap(), 1)],
        limit: 1,
        hold_id: hold,
        owner: Owner::new("me").unwrap(),
        ttl_ms: 60_000,
        wait_ms: 0,
        waited_before_ms: 0,
    };
    let claimed = block_on(store.claim(&call(), request)).unwrap().jobs.remove(0);
    AttemptRef { job_id: claimed.id, hold_id: hold, token: claimed.token }
}

fn say(store: &PostgresStore, attempt: &AttemptRef, word: Report) -> Result<ReportedAttempt, JobRefusal> {
    let report = AttemptReport { attempt: attempt.clone(), report: word };
    block_on(store.report(&call(), vec![report])).unwrap().remove(0)
}

fn is_there(store: &PostgresStore, attempt: &AttemptRef) -> bool {
    block_on(store.get_job(&call(), attempt.job_id)).unwrap().is_some()
}

#[test]
fn a_completed_job_is_gone_and_the_same_word_again_gets_the_same_answer() {
    let store = store();
    let attempt = begun(&store, job(1));
    let said = say(&store, &attempt, COMPLETE).unwrap();
    assert_eq!((said.state, said.late), (JobState::Completed, false));
    assert!(!is_there(&store, &attempt));
    assert_eq!(say(&store, &attempt, COMPLETE).unwrap(), said);
    let stranger = AttemptRef { hold_id: HoldId::from_random([9; 16]), ..attempt };
    say(&store, &stranger, COMPLETE).unwrap_err();
}

#[test]
fn a_job_of_which_there_is_more_to_tell_is_kept() {
    let store = store();
    let window_ms = 60_000;
    let unique = Some(Unique { key: UniqueKey::new("only").unwrap(), window_ms });
    let with_key = begun(&store, NewJob { unique: unique.clone(), ..job(1) });
    say(&store, &with_key, COMPLETE).unwrap();
    assert!(is_there(&store, &with_key), "its key names it");
    let again = block_on(store.enqueue(&call(), vec![NewJob { unique, ..job(2) }])).unwrap();
    assert_eq!(again[0].as_ref().unwrap().job_id, with_key.job_id);

    let with_note = begun(&store, job(3));
    say(&store, &with_note, Report::Checkpoint { checkpoint: b"half".to_vec() }).unwrap();
    say(&store, &with_note, COMPLETE).unwrap();
    assert!(is_there(&store, &with_note), "it left a checkpoint");

    let tried = begun(&store, job(4));
    say(&store, &tried, Report::Release {}).unwrap();
    let retried = begun(&store, job(4));
    say(&store, &retried, COMPLETE).unwrap();
    assert!(is_there(&store, &retried), "it has an earlier attempt");
}

#[test]
fn whoever_waits_for_the_end_of_a_job_is_told_how_it_ended() {
    let schema = fresh_schema();
    let store = Arc::new(store_in(&schema));
    let attempt = begun(&store, job(1));
    let (waiting, id) = (Arc::clone(&store), attempt.job_id);
    let waits = std::thread::spawn(move || {
        block_on(waiting.wait_for_job(&call(), WaitRequest { id, wait_ms: 60_000 })).unwrap()
    });
    let admin = crate::cluster().admin();
    while admin.value(&format!("SELECT count(*) FROM {schema}.job_awaited")) == "0" {
        std::thread::yield_now();
    }
    say(&store, &attempt, COMPLETE).unwrap();
    assert_eq!(waits.join().unwrap().unwrap().job.state, JobState::Completed);
}
