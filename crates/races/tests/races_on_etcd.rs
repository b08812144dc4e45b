//! Every race about leases that needs no power over time holds on etcd; what runs out is an etcd lease that is revoked.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

#[path = "../../store-etcd/tests/etcd/arena.rs"]
mod arena;
#[path = "../../store-etcd/tests/etcd/clock.rs"]
#[allow(dead_code, reason = "the store's own tests use the rest")]
mod clock;
#[path = "../../store-etcd/tests/etcd/cluster.rs"]
mod cluster;
mod everywhere;

use std::sync::{Arc, OnceLock};

use arena::EtcdArena;
use cluster::Cluster;
use fencehold_races::RACES;

/// One cluster for all tests of this binary: each world has a prefix of its own in it.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

#[test]
fn every_race_about_leases_holds_on_etcd() {
    let lacking = everywhere::not_applicable(|| Arc::new(EtcdArena::new()));
    let moves_time = ["R03", "R13", "R19", "R24", "R29", "R32", "R36"];
    for race in RACES {
        let expected = everywhere::is_about_jobs(race) || moves_time.contains(&race.id);
        assert_eq!(lacking.contains(&race.id), expected, "{}: {lacking:?}", race.id);
    }
}
