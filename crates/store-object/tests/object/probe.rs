//! What the probe says of storage, and that opening heeds it.

use std::sync::Arc;

use fencehold_contract::LeaseStore as _;
use fencehold_contract::clock::ManualClock;
use fencehold_store_object::{Cloud, NonceSeed, ObjectStore, ProbeCheck, ProbeReport, probe};
use fencehold_test_servers::calls::unusable;

use crate::servers::{CLOUDS, ObjectServer};

fn report(server: ObjectServer) -> ProbeReport {
    let place = server.place();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let cloud = Cloud::open(&place).unwrap();
    runtime.block_on(probe(&cloud, &place, NonceSeed::draw().unwrap())).unwrap()
}

/// Storage that keeps its conditions passes every check.
#[test]
fn storage_that_keeps_its_conditions_passes() {
    for server in CLOUDS {
        let report = report(server);
        assert_eq!(report.failure(), None, "{server:?}");
        assert_eq!(report.checks.len(), ProbeCheck::ALL.len(), "{server:?}");
    }
}

/// It is asked once a process, however many handles are opened there.
#[test]
fn storage_that_passed_is_not_probed_again() {
    let open = || {
        let clock = Arc::new(ManualClock::new());
        ObjectStore::open(&ObjectServer::Gcs.place(), clock, NonceSeed::draw().unwrap()).unwrap()
    };
    // Another test may have been first.
    open();
    assert_eq!(open().requests_sent(), Some(0));
}

/// One that lets several writers win is found out, and the check that failed is named.
#[test]
fn storage_that_lets_several_win_is_found_out() {
    let report = report(ObjectServer::Careless);
    let (check, why) = report.failure().expect("it does not keep its conditions");
    eprintln!("{check}: {why}");
    let text = report.clone().into_result().unwrap_err().to_string();
    assert!(text.contains(&check.to_string()) && text.contains("gs://leases/"), "{text}");
}

/// Opening refuses it, every time, and does nothing there.
#[test]
fn opening_refuses_storage_that_lets_several_win() {
    for _ in 0..2 {
        let clock = Arc::new(ManualClock::new());
        let opened = ObjectStore::open(&ObjectServer::Careless.place(), clock, NonceSeed::draw().unwrap());
        let why = unusable(opened.map(drop));
        assert!(why.contains("does not keep its conditions"), "{why}");
    }
}

/// A bucket that is not there is said to be so, and not called careless.
#[test]
fn a_bucket_that_is_not_there_is_unusable_for_that_reason() {
    let mut place = ObjectServer::Moto.place();
    place.bucket = "no-such-bucket".to_owned();
    let opened = ObjectStore::open(&place, Arc::new(ManualClock::new()), NonceSeed::draw().unwrap());
    let text = opened.map(drop).unwrap_err().to_string();
    assert!(text.contains("no bucket no-such-bucket") && text.contains("NoSuchBucket"), "{text}");
    assert!(!text.contains("conditions"), "{text}");
}
