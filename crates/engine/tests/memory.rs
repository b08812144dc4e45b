//! `memory:` keeps the contract.

use fencehold_conformance::{exercise, exercise_jobs};
use fencehold_engine::MemoryStore;
use fencehold_test_store::ClockedTestStore;

fencehold_conformance::lease_conformance!(|| ClockedTestStore::new(MemoryStore::open));
fencehold_conformance::job_conformance!(conformance_factory());

/// Nothing but what needs a restart is beyond a store that keeps nothing.
#[test]
fn only_restarts_are_not_applicable() {
    for report in [exercise(&conformance_factory()), exercise_jobs(&conformance_factory())] {
        let beyond = |name: &String| !name.starts_with("restart::");
        assert_eq!(report.not_applicable.iter().filter(|name| beyond(name)).collect::<Vec<_>>(), [""; 0]);
        assert!(report.passed.len() > 100, "{} cases passed", report.passed.len());
    }
}
