//! Every race holds on PostgreSQL, by a clock of its own that is moved by hand.

use std::sync::Arc;

use fencehold_races::{Environment, play_all};

use crate::test_store::PostgresTestStore;

#[test]
fn every_race_holds_on_postgresql() {
    let lacking = play_all(|| Environment::in_test_store(Arc::new(PostgresTestStore::new())), 1).unwrap();
    assert_eq!(lacking, ["R20", "R21", "R42"], "its clock is a wall clock: the store's own tests set it");
}
