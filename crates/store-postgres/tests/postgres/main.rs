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
mod event_order;
mod every_race;
mod expired_claims;
mod faults;
mod fence_conflicts;
mod fences;
mod first_use;
mod held_snapshot;
mod interleaved;
mod isolation;
mod job_alike;
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

use std::sync::OnceLock;

use cluster::{Durable, PostgresServer};
use fencehold_test_servers::{postgres as cluster, security_page};

/// One server for all tests of this binary: each has a database or a schema of its own in it.
fn cluster() -> &'static PostgresServer {
    static CLUSTER: OnceLock<PostgresServer> = OnceLock::new();
    CLUSTER.get_or_init(|| PostgresServer::start(Durable::No))
}

fencehold_conformance::lease_conformance!(test_store::PostgresTestStore::new);
