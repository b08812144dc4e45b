//! `memory:` keeps the contract.

use fencehold_store::MemoryStore;
use fencehold_store::conformance::{ClockArena, exercise};

fencehold_store::lease_conformance!(|| ClockArena::new(MemoryStore::open));

/// Nothing but what needs a restart is beyond a store that keeps nothing.
#[test]
fn only_restarts_are_not_applicable() {
    let report = exercise(&conformance_factory());
    let beyond = |name: &String| !name.starts_with("restart::");
    assert_eq!(report.not_applicable.iter().filter(|name| beyond(name)).collect::<Vec<_>>(), [""; 0]);
    assert!(report.passed.len() > 100, "{} cases passed", report.passed.len());
}
