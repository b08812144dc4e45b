//! Every race holds on PostgreSQL, by a clock of its own that is moved by hand.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

#[path = "../../store-postgres/tests/postgres/arena.rs"]
#[allow(dead_code, reason = "the store's own tests use the rest")]
mod arena;
#[path = "../../store-postgres/tests/postgres/clock.rs"]
mod clock;
#[path = "../../store-postgres/tests/postgres/cluster.rs"]
mod cluster;
mod everywhere;
#[path = "../../store-postgres/tests/postgres/template.rs"]
mod template;

use std::sync::{Arc, OnceLock};

use arena::PostgresArena;
use cluster::{Cluster, Durable};

/// One server for all tests of this binary: each world has a database of its own in it.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(|| Cluster::start(Durable::No))
}

#[test]
fn every_race_holds_on_postgresql() {
    let lacking = everywhere::not_applicable(|| Arc::new(PostgresArena::new()));
    assert_eq!(lacking, ["R20", "R21", "R42"], "its clock is a wall clock: the store's own tests set it");
}
