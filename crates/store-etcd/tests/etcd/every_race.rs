//! Every race about leases that needs no power over time holds on etcd; what runs out is an etcd lease that is revoked.

use std::sync::Arc;

use fencehold_races::{Environment, RACES, play_all};

use crate::test_store::EtcdTestStore;

#[test]
fn every_race_about_leases_holds_on_etcd() {
    let lacking = play_all(|| Environment::in_test_store(Arc::new(EtcdTestStore::new())), 1).unwrap();
    let moves_time = ["R03", "R13", "R19", "R24", "R29", "R32", "R36"];
    for race in RACES {
        let expected = race.is_about_jobs() || moves_time.contains(&race.id);
        assert_eq!(lacking.contains(&race.id), expected, "{}: {lacking:?}", race.id);
    }
}
