//! Every race about leases holds in object storage, by a clock that is moved by hand; what runs out was watched for a ttl.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]
#![allow(unreachable_pub, dead_code, reason = "shared with the tests of the store")]
#![allow(clippy::disallowed_methods, reason = "real servers take real time to start")]

#[path = "../../store-object/tests/object/arena.rs"]
mod arena;
mod everywhere;
#[path = "../../store-object/tests/object/gcs.rs"]
mod gcs;
#[path = "../../store-object/tests/object/servers.rs"]
mod servers;

use std::sync::Arc;

use arena::ObjectArena;
use fencehold_contract::AcquireRequest;
use fencehold_core::{HoldId, Key, Owner};
use fencehold_races::RACES;
use servers::Server;

/// An ordinary try, of which nobody knows the hold id.
fn ask(key: &str, owner: &str) -> AcquireRequest {
    let hold = HoldId::from_random([0x3c; 16]);
    AcquireRequest::new(Key::new(key).unwrap(), hold, Owner::new(owner).unwrap(), 30_000)
}

#[test]
fn every_race_about_leases_holds_on_s3() {
    let lacking = everywhere::not_applicable(|| Arc::new(ObjectArena::on(Server::Moto)));
    // Nobody stands in line, nobody is seen to go, nothing has a clock of its own, nothing is collected.
    let of_servers = ["R14", "R19", "R29", "R36"];
    for race in RACES {
        let expected = everywhere::is_about_jobs(race) || of_servers.contains(&race.id);
        assert_eq!(lacking.contains(&race.id), expected, "{}: {lacking:?}", race.id);
    }
}
