//! The schema: made once however many come at once, and refused where it is newer than the program.

use std::fmt::Write as _;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;

use fencehold_core::{HoldId, Key, Namespace, Token};
use fencehold_store::clock::SystemClock;
use fencehold_store::conformance::block_on;
use fencehold_store::postgres::PostgresStore;
use fencehold_store::{Call, EventsRequest, HoldRef, LeaseStore as _, StoreError};
use tracing::field::Field;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::cluster::fresh_schema;
use crate::session::LOOKS_MAX;

/// What programs are warned of, in this process.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Hears warnings, and nothing else.
struct Ear;

impl Subscriber for Ear {
    fn enabled(&self, about: &Metadata<'_>) -> bool {
        *about.level() <= Level::WARN
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut said = String::new();
        event.record(&mut |field: &Field, value: &dyn std::fmt::Debug| {
            let _ = write!(said, "{field}={value:?} ");
        });
        WARNINGS.lock().unwrap().push(said);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

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

/// As programs do it: each looks first, and finds nothing.
#[test]
fn twenty_that_use_a_schema_at_once_all_find_it_made() {
    const MANY: usize = 20;
    let schema = fresh_schema();
    let barrier = Barrier::new(MANY);
    thread::scope(|scope| {
        for _ in 0..MANY {
            scope.spawn(|| {
                let store = open(&schema);
                barrier.wait();
                block_on(store.status(&call())).unwrap();
            });
        }
    });
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

/// What there was when an older program made the schema: the first of the migrations.
#[test]
fn leases_that_are_held_go_on_when_an_older_schema_is_brought_up_to_date() {
    const OLD: usize = 10;
    let schema = fresh_schema();
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/migrations");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut sql = format!(
        "CREATE SCHEMA {schema}; SET search_path = {schema}, pg_temp;
         CREATE TABLE migration (version integer PRIMARY KEY, name text NOT NULL,
            carried_out_at timestamptz NOT NULL DEFAULT clock_timestamp());"
    );
    for (version, file) in (1..=OLD).zip(&files) {
        sql += &std::fs::read_to_string(file).unwrap();
        let noted = format!("INSERT INTO migration (version, name) VALUES ({version}, 'old');");
        sql += &noted;
    }
    let admin = crate::cluster().admin();
    admin.run(&sql);
    let (key, hold) = (Key::new("k").unwrap(), HoldId::from_random([0; 16]));
    admin.run(
        "SELECT lease_acquire('default', '{k}', substr(sha256(decode(repeat('00', 16), 'hex')), 1, 16), 0, 'me', NULL, 60000, NULL,
            0, 0, 0::smallint, NULL, NULL, NULL, 60000)",
    );
    let store = open(&schema);
    let carried_out = block_on(store.migrate(&call())).unwrap();
    assert_eq!(carried_out.len(), files.len() - OLD, "only what was missing: {carried_out:?}");
    let lease = HoldRef { key, hold, token: Token::new(1) };
    let renewed = block_on(store.renew(&call(), vec![lease])).unwrap().answers.remove(0).unwrap();
    assert_eq!(renewed.token.get(), 1);
    let all = EventsRequest { after: None, prefix: None, limit: 100, wait_ms: 0 };
    let told = block_on(store.events(&call(), all)).unwrap().events;
    assert_eq!(told.len(), 1, "what was told before is told still: {told:?}");
    let queues = block_on(store.jobs().unwrap().queues(&call())).unwrap();
    assert_eq!(queues.len(), 0, "and what is new is there");
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

/// One that is connected already goes on: but it says that it is too old, for it cannot connect anew.
#[test]
fn a_program_that_is_connected_is_told_when_a_newer_one_has_changed_the_schema() {
    // Nobody else in this process listens.
    let _ = tracing::subscriber::set_global_default(Ear);
    let schema = fresh_schema();
    // With one connection, which it has from then on.
    let mut url = crate::cluster().url(&schema);
    url.connections = 1;
    let store = PostgresStore::open(&url, Arc::new(SystemClock)).unwrap();
    block_on(store.status(&call())).unwrap();
    let admin = crate::cluster().admin();
    admin.run(&format!("INSERT INTO {schema}.migration VALUES (9999, 'of the future')"));
    let told = || {
        let warnings = WARNINGS.lock().unwrap();
        warnings
            .iter()
            .any(|said| said.contains(&format!("the schema {schema} has version 9999")))
    };
    let told = (0..LOOKS_MAX).any(|_| {
        block_on(store.status(&call())).unwrap();
        told()
    });
    assert!(told, "it was not told");
}
