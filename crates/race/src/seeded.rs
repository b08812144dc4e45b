//! Seeded bugs: each deliberate mistake is turned on in turn, and every layer of checks is run against it. A mistake that
//! nothing notices is a failure: of the checks, not of the product.
//!
//! Nouns: a *bug* is a mistake that the product makes when it is told to; a *layer* is a set of checks that was not written
//! for it. Every layer runs in a process of its own, because a mistake is chosen once for a process.

#![allow(clippy::print_stdout, reason = "a tool for the terminal: what it prints is what it is for")]

use std::process::{Command, Stdio};
use std::sync::Arc;

use fencehold_core::bugs::{Bug, VARIABLE};
use fencehold_store::conformance::{ClockArena, check, exercise, exercise_jobs};
use fencehold_store::file::FileStore;
use fencehold_store::{MemoryStore, StoreUrl};

use crate::model::{job, lease, takeover};
use crate::sim::Under;
use crate::{RACES, Side, Verdict, World, play, sim};

/// The layers that run here, cheapest first.
const LAYERS: [&str; 5] = ["race", "sim", "sqlite", "model", "conformance"];
/// How long a layer may take: one that hangs has noticed something too.
const LAYER_SECONDS: &str = "240";
/// Tests that are run as tests, against what no other layer has noticed.
const TESTS: &[&str] = &[
    "test",
    "-q",
    "-p",
    "fencehold-core",
    "-p",
    "fencehold-store",
    "--features",
    "fencehold-store/bugs",
    "--lib",
    "--test",
    "ledger",
    "--test",
    "file_sharing",
    "--test",
    "file_stopped",
    "--test",
    "file_damage",
];

/// Runs every layer against every bug, or those that are named, and prints the table. False: one was not noticed.
pub fn run(names: &[&str]) -> bool {
    println!("| bug | promise | what is done wrong | noticed by |");
    println!("|---|---|---|---|");
    let chosen = |bug: &&Bug| names.is_empty() || names.contains(&format!("{bug:?}").as_str());
    let (mut all, mut noticed) = (0, 0);
    for bug in Bug::ALL.iter().filter(chosen) {
        let mut layers: Vec<&str> = LAYERS.into_iter().filter(|layer| notices(*bug, layer)).collect();
        if layers.is_empty() && fails(*bug, Command::new("cargo").args(TESTS)) {
            layers.push("tests of the rules, of `file:` and of the writer");
        }
        all += 1;
        noticed += usize::from(!layers.is_empty());
        let by = if layers.is_empty() { "**nothing**".to_owned() } else { layers.join(", ") };
        println!("| {bug:?} | {} | {} | {by} |", bug.promise(), bug.what());
    }
    println!("\n{noticed} of {all} noticed");
    noticed == all
}

fn notices(bug: Bug, layer: &str) -> bool {
    let Ok(own) = std::env::current_exe() else { return false };
    fails(
        bug,
        Command::new("timeout")
            .args(["--kill-after=5", LAYER_SECONDS])
            .arg(own)
            .args(["layer", layer]),
    )
}

fn fails(bug: Bug, command: &mut Command) -> bool {
    let quiet = command.stdout(Stdio::null()).stderr(Stdio::null());
    let status = quiet.env(VARIABLE, format!("{bug:?}")).status();
    status.is_ok_and(|status| !status.success())
}

/// Runs one layer in this process. False, or a panic: it has noticed something. `None`: there is no such layer.
pub fn layer(name: &str) -> Option<bool> {
    match name {
        "race" => Some(races_hold()),
        "sim" => Some(sim::run(0, 600, Under::Drawn).broken.is_none()),
        "sqlite" => Some(sim::run(0, 60, Under::Sqlite).broken.is_none()),
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
            let Ok(world) = World::open(url) else { return false };
            !matches!(play(race, &world, Side::Ours, [0; 8]).verdict, Verdict::Broken(_))
        })
    })
}

fn models_hold() -> bool {
    let leases = lease::Bounds {
        clients: 2,
        acquisitions: 2,
        ticks: 3,
        doubled: 0,
        revocations: 1,
        restarts: 0,
        crashes: 0,
        fence: true,
    };
    let owners = takeover::Bounds {
        processes: 2,
        requests: 3,
        takeovers: 3,
        deaths: 0,
        commit_checks: true,
        answer_checks: true,
    };
    let jobs = job::Bounds {
        workers: 2,
        claims: 2,
        ticks: 3,
        doubled: 0,
        cancels: 1,
        crashes: 0,
        proof: true,
        asks: false,
    };
    lease::run(leases, 250_000).as_it_should_be()
        && job::run(jobs, 250_000).as_it_should_be()
        && takeover::run(owners, 100_000).as_it_should_be()
}

/// Every case on `memory:`, and those that need a restart on `file:`. A case that fails panics.
fn conformance_holds() -> bool {
    let report = exercise(&|| ClockArena::new(MemoryStore::open));
    exercise_jobs(&|| ClockArena::new(MemoryStore::open));
    let factory = || {
        let room = Arc::new(tempfile::tempdir().expect("a temporary directory"));
        ClockArena::new(move |clock| FileStore::open(room.path(), clock)).that_restarts()
    };
    for name in report.not_applicable {
        if let Some((theme @ "restart", case)) = name.split_once("::") {
            check(&factory, theme, case);
        }
    }
    true
}
