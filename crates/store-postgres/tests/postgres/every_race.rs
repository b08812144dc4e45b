//! Every race holds on PostgreSQL, by a clock of its own that is moved by hand.

use std::sync::Arc;

use fencehold_races::{World, play_all};

use crate::arena::PostgresArena;

#[test]
fn every_race_holds_on_postgresql() {
    let lacking = play_all(|| World::in_arena(Arc::new(PostgresArena::new())), 1).unwrap();
    assert_eq!(lacking, ["R20", "R21", "R42"], "its clock is a wall clock: the store's own tests set it");
}
