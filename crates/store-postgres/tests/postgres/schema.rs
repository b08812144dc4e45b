//! The schema: made once however many come at once, and refused where it is newer than the program.

use std::fmt::Write as _;
use std::sync::{Barrier, Mutex};
use std::thread;

use fencehold_contract::{CallContext, HoldRef, LeaseStore as _, ListEventsRequest, MigrateSchema, StoreUrl};
use fencehold_core::{Namespace, Token};
use fencehold_test_servers::calls::{
    OneByOne as _, call, hold_id, key, lease_request, unavailable, unusable,
};
use fencehold_test_store::block_on;
use tracing::field::Field;
use tracing::{Event, Level, Metadata, Subscriber, span};

use crate::cluster::fresh_schema;
use crate::session::until;
use crate::upgraded::old_schema;
use crate::{migrated, open, open_url, open_with};

/// What programs are warned of, in this process.
static WARNINGS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Hears warnings, and nothing else.
struct WarningLog;

impl Subscriber for WarningLog {
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
    assert_eq!(*worked[0], ["new schema"]);
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

fn make_too_new(schema: &str) {
    let newer = format!("INSERT INTO {schema}.migration VALUES (9999, 'of the future')");
    crate::cluster().admin().run(&newer);
}

#[test]
fn a_schema_that_is_newer_than_the_program_is_refused_and_left_alone() {
    let schema = migrated();
    make_too_new(&schema);
    let why = unusable(block_on(open(&schema).migrate(&call())));
    assert!(why.contains("version 9999") && why.contains("update this one"), "{why}");
    assert_eq!(block_on(open(&schema).schema_version(&call())).unwrap().found, 9999);
}

#[test]
fn leases_that_are_held_go_on_when_an_older_schema_is_brought_up_to_date() {
    let schema = old_schema();
    let admin = crate::cluster().admin();
    admin.run(&format!("SET search_path = {schema}, pg_temp"));
    admin.run(
        "SELECT lease_acquire('held', '{k}', substr(sha256(decode(repeat('00', 16), 'hex')), 1, 16), 0, 'me', NULL, 60000, NULL,
            0, 0, 0::smallint, NULL, NULL, NULL, 60000)",
    );
    let store = open(&schema);
    assert_eq!(block_on(store.migrate(&call())).unwrap()[0], "upgrade from 21");
    let call = CallContext::new(Namespace::new("held").unwrap()).with_timeout_ms(60_000);
    let lease = HoldRef { key: key("k"), hold_id: hold_id(0), token: Token::new(1) };
    let renewed = block_on(store.renew(&call, vec![lease])).unwrap().results.remove(0).unwrap();
    assert_eq!(renewed.token.get(), 1);
    let all = ListEventsRequest { limit: 100, ..ListEventsRequest::default() };
    let told = block_on(store.list_events(&call, all)).unwrap().events;
    assert_eq!(told.len(), 1, "earlier events are still there: {told:?}");
}

#[test]
fn a_server_that_is_not_there_is_named_without_its_password() {
    let url = "postgres://me:secret@127.0.0.1:1/app".parse().unwrap();
    let StoreUrl::Postgres(url) = url else { panic!("{url}") };
    let why = unavailable(block_on(open_url(&url).migrate(&call().with_timeout_ms(50))));
    assert!(why.starts_with("postgres://me@127.0.0.1:1/app: "), "{why}");
    assert!(!why.contains("secret"), "{why}");
}

/// One that is connected already goes on: but it says that it is too old, for it cannot connect anew.
#[test]
fn a_program_that_is_connected_is_told_when_a_newer_one_has_changed_the_schema() {
    // Nothing else in this process listens.
    let _ = tracing::subscriber::set_global_default(WarningLog);
    let schema = fresh_schema();
    // With one connection, which it has from then on.
    let store = open_with(&schema, |url| url.connections = 1);
    block_on(store.status(&call())).unwrap();
    make_too_new(&schema);
    let warning = format!("the schema {schema} has version 9999");
    until("a warning", || {
        block_on(store.status(&call())).unwrap();
        WARNINGS.lock().unwrap().iter().any(|said| said.contains(&warning))
    });
}

#[test]
fn an_older_schema_is_changed_only_when_that_is_asked_for() {
    let (admin, schema) = (crate::cluster().admin(), old_schema());
    let found = || block_on(open(&schema).schema_version(&call())).unwrap().found;
    let why = unusable(block_on(open(&schema).status(&call())));
    assert!(why.contains("store migrate") && why.contains("migrate=auto"), "{why}");
    assert_eq!(found(), 21, "using it changed nothing");
    let (missing, sql) = block_on(open(&schema).missing_migrations(&call())).unwrap();
    assert_eq!(missing[0], "upgrade from 21");
    assert_eq!(found(), 21, "nor did looking");
    // As a DBA does it by hand.
    admin.run(&sql);
    let after = block_on(open(&schema).schema_version(&call())).unwrap();
    assert!(after.usable && after.found == after.known, "{after:?}");
    block_on(open(&schema).status(&call())).unwrap();
    assert!(admin.try_run(&sql).is_err(), "the script is for the version that it was printed for");
}

#[test]
fn a_program_that_may_migrates_an_older_schema_on_first_use() {
    let schema = old_schema();
    let store = open_with(&schema, |url| url.migrate = MigrateSchema::Auto);
    block_on(store.status(&call())).unwrap();
    let after = block_on(store.schema_version(&call())).unwrap();
    assert_eq!(after.found, after.known);
}

#[test]
fn a_schema_of_a_newer_program_is_used_by_those_that_it_names_as_compatible() {
    let (admin, schema) = (crate::cluster().admin(), fresh_schema());
    let store = open(&schema);
    let known = block_on(async {
        store.migrate(&call()).await?;
        store.schema_version(&call()).await
    })
    .unwrap()
    .known;
    admin.run(&format!(
        "INSERT INTO {schema}.migration (version, name, compatible_from) VALUES (9999, 'of the future', {known})"
    ));
    let later = open(&schema);
    block_on(later.status(&call())).unwrap();
    assert_eq!(block_on(later.migrate(&call())).unwrap().len(), 0, "it changes nothing there");
    let version = block_on(later.schema_version(&call())).unwrap();
    assert!(version.usable && version.found == 9999, "{version:?}");
    block_on(store.status(&call())).unwrap();
}

/// R46: a newer program has changed the schema while an older one held something: that is finished, and nothing new is begun.
#[test]
fn what_is_held_is_finished_in_a_schema_that_became_too_new() {
    let (admin, schema) = (crate::cluster().admin(), fresh_schema());
    let store = open_with(&schema, |url| url.application_name = Some(schema.clone()));
    let held = store.take(lease_request("k", 1, "A"));
    make_too_new(&schema);
    // It must connect anew, also where it was just connecting.
    admin.end_sessions(&format!("application_name = '{schema}'"));
    store.renew_one(&held).unwrap();
    let why = unusable(block_on(store.acquire(&call(), lease_request("l", 2, "A"))));
    assert!(why.contains("update this one"), "it began something new: {why}");
    store.release_one(&held).unwrap();
    let why = unusable(block_on(open(&schema).status(&call())));
    assert!(why.contains("update this one"), "{why}");
}

#[test]
fn a_schema_may_be_called_by_a_word_of_the_language() {
    let store = open("order");
    block_on(store.status(&call())).unwrap();
    block_on(store.jobs().unwrap().list_queues(&call())).unwrap();
    assert_eq!(store.take(lease_request("k", 1, "A")).token.get(), 1);
}
