//! Calls that carry too much: refused with their own words, and nothing of them is done.

use fencehold_contract::StoreError;
use fencehold_contract::job::NewJob;
use fencehold_core::job::JobId;
use fencehold_core::limits::{CALL_BYTES_MAX, JOBS_PER_CALL_MAX, PAYLOAD_BYTES_MAX};
use fencehold_test_servers::calls::{call, new_job};
use fencehold_test_store::{TestStore as _, block_on};

use crate::test_store::PostgresTestStore;

fn jobs(count: usize, payload: &str) -> Vec<NewJob> {
    (1..=count as u64)
        .map(|nth| new_job(JobId::due(nth, "bounds"), "q", payload))
        .collect()
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
    let large = format!("\"{}\"", "x".repeat(PAYLOAD_BYTES_MAX - 2));
    for (jobs, numbers) in [
        (jobs(JOBS_PER_CALL_MAX + 1, "{}"), vec!["10001".to_owned(), "10000".to_owned()]),
        (jobs(CALL_BYTES_MAX / PAYLOAD_BYTES_MAX + 1, &large), vec![CALL_BYTES_MAX.to_string()]),
    ] {
        match enqueue(jobs) {
            Err(StoreError::BadInput(bad)) => {
                assert!(numbers.iter().all(|number| bad.to_string().contains(number)), "{bad}");
            }
            other => panic!("{numbers:?}: {:?}", other.map(|answers| answers.len())),
        }
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
