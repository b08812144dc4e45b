//! Leases in object storage, against servers that stand for the clouds.
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    unreachable_pub,
    missing_docs,
    reason = "a test may stop at anything"
)]
#![allow(clippy::disallowed_methods, reason = "real servers take real time to start")]

mod clocks;
mod error_responses;
mod every_race;
mod faults;
mod fixture;
mod naive_lock;
mod probe;
mod quotas;
mod races;
mod repeated_requests;
mod request_counts;
mod test_store;

use std::sync::atomic::{AtomicU64, Ordering};

use fencehold_contract::AcquireLeaseRequest;
use fencehold_core::HoldId;
use fencehold_test_servers::calls::lease_request;
use fencehold_test_servers::object as servers;
use servers::ObjectServer;
use test_store::ObjectTestStore;

/// The ttl that tests use: nothing runs out by itself.
pub const TTL_MS: u64 = 30_000;

/// An ordinary try, by a new hold id.
pub fn ask(key: &str, owner: &str) -> AcquireLeaseRequest {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut bits = [0x3c; 16];
    bits[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    AcquireLeaseRequest { hold_id: HoldId::from_random(bits), ..lease_request(key, 0, owner) }
}

mod s3 {
    use super::{ObjectServer, ObjectTestStore};
    fencehold_conformance::lease_conformance!(|| ObjectTestStore::on(ObjectServer::Moto));
}

mod gs {
    use super::{ObjectServer, ObjectTestStore};
    fencehold_conformance::lease_conformance!(|| ObjectTestStore::on(ObjectServer::Gcs));
}

mod az {
    use super::{ObjectServer, ObjectTestStore};
    fencehold_conformance::lease_conformance!(|| ObjectTestStore::on(ObjectServer::Azurite));
}
