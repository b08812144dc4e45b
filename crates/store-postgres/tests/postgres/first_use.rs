//! Those who come to a schema for the first time: many at once, and one who may only look.

use std::sync::{Arc, Barrier};
use std::thread;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{AcquireLeaseRequest, CallContext, LeaseStore as _, StoreError, StoreUrl};
use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_store_postgres::PostgresStore;
use fencehold_test_store::block_on;

use crate::cluster::fresh_schema;

fn call() -> CallContext {
    CallContext::new(Namespace::default()).with_timeout_ms(60_000)
}

/// Each looks whether the schema is there, finds that it is not, and waits for the one that makes it.
#[test]
fn twenty_whose_first_call_is_an_ordinary_one_find_the_schema_made() {
    const MANY: usize = 20;
    let (schema, barrier) = (fresh_schema(), Barrier::new(MANY));
    thread::scope(|scope| {
        for _ in 0..MANY {
            scope.spawn(|| {
                let store =
                    PostgresStore::open(&crate::cluster().url(&schema), Arc::new(SystemClock)).unwrap();
                barrier.wait();
                block_on(store.status(&call())).unwrap();
            });
        }
    });
}

#[test]
fn one_who_may_only_look_can_look_and_is_refused_the_rest() {
    let schema = fresh_schema();
    let open = |text: &str| {
        let StoreUrl::Postgres(url) = text.parse().unwrap() else { panic!("{text}") };
        PostgresStore::open(&url, Arc::new(SystemClock)).unwrap()
    };
    let text = crate::cluster().url_text(&schema);
    let owner = open(&text);
    let request = |hold: u8| {
        let (key, hold) = (Key::new("k").unwrap(), HoldId::from_random([hold; 16]));
        AcquireLeaseRequest::new(key, hold, Owner::new("A").unwrap(), 30_000)
    };
    block_on(owner.acquire(&call(), request(1))).unwrap();
    let reader = format!("reader_of_{schema}");
    let admin = crate::cluster().admin();
    admin.run(&format!("CREATE ROLE {reader} LOGIN IN ROLE fencehold_{schema}_reader"));
    let looking = open(&text.replacen("postgres@", &format!("{reader}@"), 1));
    let seen = block_on(looking.get(&call(), Key::new("k").unwrap())).unwrap().unwrap();
    assert_eq!(seen.holder.unwrap().owner.as_str(), "A");
    assert!(block_on(looking.status(&call())).is_ok());
    match block_on(looking.acquire(&call(), request(2))) {
        Err(StoreError::Unusable { message: why, .. }) => {
            assert!(why.contains(&format!("fencehold_{schema}_worker")), "{why}");
        }
        other => panic!("{other:?}"),
    }
}
