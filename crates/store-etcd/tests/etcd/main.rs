//! The store `etcd://` against a cluster of three members.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod arena;
mod arranged;
mod clock;
mod every_race;
mod faults;
mod gates;
mod limited;
mod people;
mod requests;
mod secure;
mod unheard;

use std::sync::OnceLock;

use fencehold_contract::CallContext;
use fencehold_core::Namespace;
use fencehold_test_servers::etcd::Cluster;

/// One cluster, whose members stay alive, for all tests of this binary but the faults: each has a prefix of its own in it.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

fencehold_conformance::lease_conformance!(arena::EtcdArena::new);
