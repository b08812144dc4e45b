//! Every race about leases holds in object storage, by a clock that is moved by hand; what runs out was watched for a ttl.

use std::sync::Arc;

use fencehold_races::{Environment, RACES, play_all};

use crate::servers::ObjectServer;
use crate::test_store::ObjectTestStore;

#[test]
fn every_race_about_leases_holds_on_s3() {
    let lacking =
        play_all(|| Environment::in_test_store(Arc::new(ObjectTestStore::on(ObjectServer::Moto))), 1)
            .unwrap();
    // No line, no sight of callers that go, no clock of its own, no collection.
    let of_servers = ["R14", "R19", "R29", "R36"];
    for race in RACES {
        let expected = race.is_about_jobs() || of_servers.contains(&race.id);
        assert_eq!(lacking.contains(&race.id), expected, "{}: {lacking:?}", race.id);
    }
}
