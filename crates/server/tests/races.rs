//! Every race holds through `http://`, against a server process whose clock is moved by hand, on `memory:` and on `file:`.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod clocked;
#[path = "../../races/tests/everywhere/mod.rs"]
mod everywhere;

use std::sync::Arc;

use clocked::arena::ServerArena;
use everywhere::not_applicable;

/// Not a test of its own: the process that the others start.
#[test]
fn a_server_whose_clock_is_moved_by_hand() {
    clocked::serve_if_asked();
}

#[test]
fn every_race_holds_through_a_server_on_memory() {
    assert_eq!(
        not_applicable(|| Arc::new(ServerArena::on(None))),
        ["R23", "R23-job", "R47"],
        "what is in memory is gone with it"
    );
}

#[test]
fn every_race_holds_through_a_server_on_file() {
    assert_eq!(not_applicable(|| Arc::new(ServerArena::on(Some(tempfile::tempdir().unwrap())))), [""; 0]);
}
