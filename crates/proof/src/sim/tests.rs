//! What is counted is what happened, and what happened too seldom is said.

use crate::simulated::ImageState;

use super::plan::{SimFault, StorageKind};
use super::world::Simulation;
use super::{ON_SQLITE, SimStorage, Summary};

#[test]
fn a_store_that_is_down_is_neither_killed_nor_paused_nor_without_power() {
    for fault in [SimFault::StoreKill, SimFault::StorePause, SimFault::PowerCut] {
        let mut world = Simulation::new(1, Some(StorageKind::Log), false);
        world.plan.faults = vec![fault];
        world.fault();
        assert_eq!(world.tally.of(fault.name()), 0, "no process serves yet");
        world.store_starts(ImageState::SameBoot).unwrap();
        world.fault();
        assert_eq!(world.tally.of(fault.name()), 1, "{fault:?}");
    }
}

#[test]
fn trouble_of_a_disk_counts_when_it_is_met() {
    for storage in [StorageKind::Log, StorageKind::Sqlite] {
        for fault in
            [SimFault::PowerCutInWrite, SimFault::SyncFails, SimFault::WriteFails, SimFault::DiskFull]
        {
            let mut world = Simulation::new(1, Some(storage), true);
            world.plan.faults = vec![fault];
            world.store_starts(ImageState::SameBoot).unwrap();
            world.fault();
            assert_eq!(world.tally.of(fault.name()), 0, "{fault:?} lies in wait");
            assert_eq!(world.run(), Ok(()));
            let drawn = world.story.unwrap().matches(&format!("FAULT: {}\n", fault.name())).count();
            let struck = usize::try_from(world.tally.of(fault.name())).unwrap();
            assert!(0 < struck && struck <= drawn, "{storage:?}: {fault:?} struck {struck} times of {drawn}");
        }
    }
}

#[test]
fn so_many_seeds_with_hardly_any_sqlite_prove_too_little() {
    let mut summary = Summary::new(SimStorage::Drawn);
    for what in summary.missing() {
        summary.tally.count(what);
    }
    summary.seeds = 999;
    assert_eq!(summary.shortfalls(), [""; 0], "a small run may have any share");
    summary.seeds = 1_000;
    let said = summary.shortfalls();
    assert_eq!(said.len(), 1, "{said:?}");
    assert!(said[0].contains("histories drove SQLite itself, and 10 are the least"), "{said:?}");
    for _ in 0..10 {
        summary.tally.count(ON_SQLITE);
    }
    assert_eq!(summary.shortfalls(), [""; 0]);
}

#[test]
fn what_never_happened_is_named() {
    let said = Summary::new(SimStorage::Drawn).shortfalls().join("");
    for what in ["store killed", "sync fails", "owner whose clock runs fast or slow", "acquire: granted"] {
        assert!(said.contains(what), "{what}: {said}");
    }
}
