//! Calls that carry too much: refused with their own words, and nothing of them is done.

use fencehold_contract::StoreError;
use fencehold_contract::job::NewJob;
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_core::limits::{CALL_BYTES_MAX, JOBS_PER_CALL_MAX, PAYLOAD_BYTES_MAX};
use fencehold_test_store::{TestStore as _, block_on};

use crate::job_transactions::call;
use crate::test_store::PostgresTestStore;

fn jobs(count: usize, payload: &str) -> Vec<NewJob> {
    let new = |nth: usize| {
        let id = JobId::due(nth as u64 + 1, "bounds");
        NewJob::new(id, QueueName::new("q").unwrap(), JobKind::new("work").unwrap(), payload)
    };
    (0..count).map(new).collect()
}

fn kept(test_store: &PostgresTestStore) -> String {
    test_store.value(&format!(
        "SELECT count(*) FROM {0}.job_body JOIN {0}.job_ready USING (arrival)",
        test_store.schema
    ))
}

#[test]
fn a_batch_above_the_limit_is_refused_with_its_numbers_and_leaves_nothing() {
    let test_store = PostgresTestStore::new();
    let store = test_store.store();
    let enqueue = |jobs| block_on(store.jobs().unwrap().enqueue(&call(), jobs));
    match enqueue(jobs(JOBS_PER_CALL_MAX + 1, "{}")) {
        Err(StoreError::BadInput(bad)) => {
            let said = bad.to_string();
            assert!(said.contains("10001") && said.contains("10000"), "{said}");
        }
        other => panic!("{:?}", other.map(|answers| answers.len())),
    }
    let large = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
    match enqueue(jobs(CALL_BYTES_MAX / PAYLOAD_BYTES_MAX + 1, &large)) {
        Err(StoreError::BadInput(bad)) => {
            assert!(bad.to_string().contains(&CALL_BYTES_MAX.to_string()), "{bad}");
        }
        other => panic!("{:?}", other.map(|answers| answers.len())),
    }
    block_on(store.jobs().unwrap().list_queues(&call())).unwrap();
    assert_eq!(kept(&test_store), "0");
}

#[test]
fn a_batch_at_the_limit_is_taken_whole_and_once() {
    let test_store = PostgresTestStore::new();
    let store = test_store.store();
    for existed in [false, true] {
        let answers =
            block_on(store.jobs().unwrap().enqueue(&call(), jobs(JOBS_PER_CALL_MAX, "{}"))).unwrap();
        assert!(
            answers
                .iter()
                .all(|answer| answer.as_ref().is_ok_and(|made| made.existed == existed))
        );
        assert_eq!(kept(&test_store), JOBS_PER_CALL_MAX.to_string());
    }
}
