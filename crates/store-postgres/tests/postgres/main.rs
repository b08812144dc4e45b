//! The store `postgres://` against a private server.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod alike;
mod another_server;
mod call_cost;
mod call_order;
mod clock;
mod clock_set;
mod completed_jobs_drop;
mod concurrent_marks;
mod contention;
mod counts;
mod enqueue_documents;
mod event_order;
mod every_race;
mod expired_claims;
mod faults;
mod fence_conflicts;
mod fences;
mod held_snapshot;
mod interleaved;
mod isolation;
mod job_alike;
mod job_counts;
mod job_lists;
mod job_races;
mod job_transactions;
mod job_wait_queue;
mod jobs;
mod lost_response;
mod notifications_from_sql;
mod other_roles;
mod oversized_calls;
mod pages;
mod partial_calls;
mod pooler;
mod producers;
mod public;
mod python;
mod queue_modes;
mod quotas;
mod recorded_statements;
mod renewal_connections;
mod restored_dump;
mod rights;
mod roles;
mod schema;
mod session;
mod stopped_backend;
mod sweeps;
mod template;
mod tenants;
mod test_store;
mod tls;
mod undelivered;
mod upgraded;
mod upkeep;
mod url_options;

use std::sync::{Arc, OnceLock};

use cluster::{Durable, PostgresServer, fresh_schema};
use fencehold_contract::PostgresUrl;
use fencehold_contract::clock::SystemClock;
use fencehold_store_postgres::PostgresStore;
use fencehold_test_servers::calls::call;
use fencehold_test_servers::{postgres as cluster, security_page};
use fencehold_test_store::block_on;

/// One server for all tests of this binary: each has a database or a schema of its own in it.
fn cluster() -> &'static PostgresServer {
    static CLUSTER: OnceLock<PostgresServer> = OnceLock::new();
    CLUSTER.get_or_init(|| PostgresServer::start(Durable::No))
}

fn open_url(url: &PostgresUrl) -> PostgresStore {
    PostgresStore::open(url, Arc::new(SystemClock)).unwrap()
}

/// A store in a schema of the server that all tests share.
fn open(schema: &str) -> PostgresStore {
    open_with(schema, |_| ())
}

/// The same by another URL.
fn open_with(schema: &str, change: impl FnOnce(&mut PostgresUrl)) -> PostgresStore {
    let mut url = cluster().url(schema);
    change(&mut url);
    open_url(&url)
}

/// The same, used by another role.
fn open_as(role: &str, schema: &str) -> PostgresStore {
    open_with(schema, |url| url.user = Some(role.to_owned()))
}

/// A fresh schema that is up to date.
fn migrated() -> String {
    let schema = fresh_schema();
    block_on(open(&schema).migrate(&call())).unwrap();
    schema
}

fencehold_conformance::lease_conformance!(test_store::PostgresTestStore::new);
