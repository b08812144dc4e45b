//! The layers of checks that `cargo xtask bugs` runs against each deliberate bug. None of them was written for a bug.

use std::sync::Arc;

use fencehold_conformance::{check, exercise, exercise_jobs};
use fencehold_contract::StoreUrl;
use fencehold_engine::MemoryStore;
use fencehold_races::{Environment, RACES, RaceVerdict, Side, play};
use fencehold_store_file::FileStore;
use fencehold_test_store::ClockedTestStore;

use crate::model::suite::{OWNERS, TWO, WORKERS};
use crate::model::{job, lease, takeover};
use crate::sim;
use crate::sim::SimStorage;

/// Runs one layer in this process. False, or a panic: it has noticed something. `None`: there is no such layer.
pub fn run(name: &str) -> Option<bool> {
    match name {
        "race" => Some(races_hold()),
        "sim" => Some(sim::run(0, 600, SimStorage::Drawn).broken.is_none()),
        "sqlite" => Some(sim::run(0, 200, SimStorage::Sqlite).broken.is_none()),
        "model" => Some(models_hold()),
        "conformance" => Some(conformance_holds()),
        _ => None,
    }
}

fn races_hold() -> bool {
    let Ok(room) = tempfile::tempdir() else { return false };
    let stores = [StoreUrl::memory(), StoreUrl::file(room.path())];
    stores.iter().all(|url| {
        RACES.iter().all(|race| {
            let Ok(world) = Environment::open(url) else { return false };
            !matches!(play(race, &world, Side::Ours, [0; 8]).verdict, RaceVerdict::Broken(_))
        })
    })
}

fn models_hold() -> bool {
    let leases = lease::LeaseBounds { revocations: 1, ..TWO };
    let jobs = job::JobBounds { cancels: 1, ..WORKERS };
    let owners = takeover::TakeoverBounds { processes: 2, requests: 3, takeovers: 3, deaths: 0, ..OWNERS };
    lease::run(leases, 250_000).as_it_should_be()
        && job::run(jobs, 250_000).as_it_should_be()
        && takeover::run(owners, 100_000).as_it_should_be()
}

/// Every case on `memory:`, and those that need a restart on `file:`. A case that fails panics.
fn conformance_holds() -> bool {
    let report = exercise(&|| ClockedTestStore::new(MemoryStore::open));
    exercise_jobs(&|| ClockedTestStore::new(MemoryStore::open));
    let factory = || {
        let room = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        ClockedTestStore::new(move |clock| FileStore::open_or_create(room.path(), clock)).that_restarts()
    };
    for name in report.not_applicable {
        if let Some((theme @ "restart", case)) = name.split_once("::") {
            check(&factory, theme, case);
        }
    }
    true
}
