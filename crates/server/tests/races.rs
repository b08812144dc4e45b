//! Every race holds through `http://`, against a server process whose clock is moved by hand, on `memory:` and on `file:`.

use std::sync::Arc;

use fencehold_races::{Environment, play_all};
use tempfile::TempDir;

use crate::clocked::test_store::ServerTestStore;

fn not_applicable(store: impl Fn() -> ServerTestStore) -> Vec<&'static str> {
    play_all(|| Environment::in_test_store(Arc::new(store())), 1).unwrap()
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[test]
fn every_race_holds_through_a_server_on_memory() {
    assert_eq!(
        not_applicable(|| ServerTestStore::on(None)),
        ["R23", "R23-job", "R47"],
        "what is in memory is gone with it"
    );
}

#[test]
fn every_race_holds_through_a_server_on_file() {
    assert_eq!(not_applicable(|| ServerTestStore::on(Some(directory()))), [""; 0]);
}

#[test]
fn every_race_holds_through_a_server_in_batches() {
    assert_eq!(not_applicable(|| ServerTestStore::batching(Some(directory()))), [""; 0]);
}
