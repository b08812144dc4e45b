//! The schema: made once however many come at once, and refused where it is newer than the program.

use std::sync::{Arc, Barrier};
use std::thread;

use fencehold_core::Namespace;
use fencehold_store::clock::SystemClock;
use fencehold_store::conformance::block_on;
use fencehold_store::postgres::PostgresStore;
use fencehold_store::{Call, StoreError};

use crate::cluster::fresh_schema;

fn open(schema: &str) -> PostgresStore {
    PostgresStore::open(&crate::cluster().url(schema), Arc::new(SystemClock)).unwrap()
}

fn call() -> Call {
    Call::new(Namespace::default()).with_patience_ms(60_000)
}

#[test]
fn twenty_that_start_at_once_make_the_schema_once() {
    const MANY: usize = 20;
    let schema = fresh_schema();
    let barrier = Barrier::new(MANY);
    let done: Vec<Vec<String>> = thread::scope(|scope| {
        let migrate = || {
            let store = open(&schema);
            barrier.wait();
            block_on(store.migrate(&call())).unwrap()
        };
        let threads: Vec<_> = (0..MANY).map(|_| scope.spawn(migrate)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let worked: Vec<_> = done.iter().filter(|names| !names.is_empty()).collect();
    assert_eq!(worked.len(), 1, "one does it, the others find it done: {done:?}");
    assert_eq!(worked[0][0], "base");
    let version = block_on(open(&schema).schema_version(&call())).unwrap();
    assert_eq!(version.found, version.known);
}

#[test]
fn a_schema_that_is_newer_than_the_program_is_refused_and_left_alone() {
    let schema = fresh_schema();
    block_on(open(&schema).migrate(&call())).unwrap();
    let admin = crate::cluster().admin();
    admin.run(&format!("INSERT INTO {schema}.migration VALUES (9999, 'of the future')"));
    match block_on(open(&schema).migrate(&call())) {
        Err(StoreError::Unusable { why, .. }) => {
            assert!(why.contains("version 9999") && why.contains("update this one"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(block_on(open(&schema).schema_version(&call())).unwrap().found, 9999);
}

#[test]
fn a_server_that_is_not_there_is_named_without_its_password() {
    let url = "postgres://me:secret@127.0.0.1:1/app".parse().unwrap();
    let fencehold_store::StoreUrl::Postgres(url) = url else { panic!("{url}") };
    let store = PostgresStore::open(&url, Arc::new(SystemClock)).unwrap();
    match block_on(store.migrate(&call().with_patience_ms(50))) {
        Err(StoreError::Unavailable { why }) => {
            assert!(why.starts_with("postgres://me@127.0.0.1:1/app: "), "{why}");
            assert!(!why.contains("secret"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}
