//! The store `etcd://` against a cluster of three members.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod arranged_races;
mod clock;
mod every_race;
mod faults;
mod quotas;
mod request_counts;
mod request_gate;
mod secure;
mod test_client;
mod test_store;
mod undelivered;

use std::sync::OnceLock;

use fencehold_contract::CallContext;
use fencehold_core::Namespace;
use fencehold_test_servers::etcd::EtcdCluster;

/// One cluster, whose members stay alive, for all tests of this binary but the faults: each has a prefix of its own in it.
fn cluster() -> &'static EtcdCluster {
    static CLUSTER: OnceLock<EtcdCluster> = OnceLock::new();
    CLUSTER.get_or_init(EtcdCluster::start)
}

fn call() -> CallContext {
    CallContext::new(Namespace::default())
}

fencehold_conformance::lease_conformance!(test_store::EtcdTestStore::new);
