//! The store `etcd://` against a cluster of three members that stay alive.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod arena;
mod arranged;
mod clock;
mod cluster;
mod gates;
mod limited;
mod people;
mod requests;
mod secure;
mod unheard;

use std::sync::OnceLock;

use cluster::Cluster;

/// One cluster for all tests of this binary: each has a prefix of its own in it.
fn cluster() -> &'static Cluster {
    static CLUSTER: OnceLock<Cluster> = OnceLock::new();
    CLUSTER.get_or_init(Cluster::start)
}

fencehold_conformance::lease_conformance!(arena::EtcdArena::new);
