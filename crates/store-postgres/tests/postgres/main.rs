//! The store `postgres://` against a private server.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod alike;
mod another_server;
mod apart;
mod arena;
mod bounds;
mod call_order;
mod clock;
mod clock_set;
mod dropped;
mod effort;
mod event_order;
mod every_race;
mod faults;
mod fences;
mod given_back;
mod half_done;
mod held_snapshot;
mod in_the_way;
mod interleaved;
mod isolation;
mod job_alike;
mod job_handles;
mod job_line;
mod job_races;
mod jobs;
mod limited;
mod lost_answer;
mod marks;
mod neighbours;
mod newcomers;
mod pages;
mod pooler;
mod producers;
mod public;
mod python;
mod queue_modes;
mod recorded;
mod restored;
mod rights;
mod roles;
mod run_out;
mod schema;
mod secure;
mod session;
mod stopped;
mod sweeps;
mod template;
mod tenants;
mod told_by_sql;
mod upgraded;

use std::sync::OnceLock;

use cluster::{Cluster, Durable};
use fencehold_test_servers::{page, postgres as cluster};

/// One server for all tests of this binary: each has a database or a schema of its own in it.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start(Durable::No))
}

fencehold_conformance::lease_conformance!(arena::PostgresArena::new);
