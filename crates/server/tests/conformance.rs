//! The contract holds through `http://`, against a real server process on `memory:` and on `file:`.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod clocked;

use clocked::arena::ServerArena;

/// Not a test of its own: the process that the others start.
#[test]
fn a_server_whose_clock_is_moved_by_hand() {
    clocked::serve_if_asked();
}

mod on_memory {
    fencehold_conformance::lease_conformance!(|| super::ServerArena::on(None));
    fencehold_conformance::job_conformance!(conformance_factory());
}

mod on_file {
    fencehold_conformance::lease_conformance!(|| super::ServerArena::on(Some(tempfile::tempdir().unwrap())));
    fencehold_conformance::job_conformance!(conformance_factory());
}
