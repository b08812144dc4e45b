//! The layers of checks: how each is built and run, and what its end means.

use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::Arc;

use fencehold_conformance::{check, exercise, exercise_jobs};
use fencehold_contract::StoreUrl;
use fencehold_core::bugs::{Bug, VARIABLE};
use fencehold_engine::MemoryStore;
use fencehold_races::{RACES, Side, Verdict, World, play};
use fencehold_store_file::FileStore;
use fencehold_test_store::ClockArena;

use crate::model::{job, lease, takeover};
use crate::sim;
use crate::sim::Under;

/// A set of checks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layer {
    /// As the table calls it.
    pub(super) shown: &'static str,
    how: How,
    /// How long it may take.
    seconds: u64,
}

#[derive(Clone, Copy, Debug)]
enum How {
    /// This program, as `layer NAME`.
    Here(&'static str),
    /// `cargo test` with these words, and with these for the program of tests.
    Tests(&'static [&'static str], &'static [&'static str]),
}

/// Run against every bug, cheapest first.
pub(super) const USUAL: &[Layer] = &[
    Layer { shown: "race", how: How::Here("race"), seconds: 240 },
    Layer { shown: "sim", how: How::Here("sim"), seconds: 240 },
    Layer { shown: "sim on SQLite", how: How::Here("sqlite"), seconds: 240 },
    Layer { shown: "model", how: How::Here("model"), seconds: 240 },
    Layer { shown: "conformance", how: How::Here("conformance"), seconds: 240 },
];

/// Run against what no usual layer has noticed, one after the other.
pub(super) const LAST_RESORTS: &[Layer] = &[
    Layer {
        shown: "tests of the rules",
        how: How::Tests(&["-p", "fencehold-core", "--features", "bugs", "--tests"], &[]),
        seconds: 600,
    },
    Layer {
        shown: "tests of `file:` and of the writer",
        how: How::Tests(
            &[
                "-p",
                "fencehold-core",
                "-p",
                "fencehold-contract",
                "-p",
                "fencehold-engine",
                "-p",
                "fencehold-store-file",
                "-p",
                "fencehold-stores",
                "--features",
                "fencehold-core/bugs",
                "--lib",
                "--test",
                "file",
                "--test",
                "stores",
            ],
            // The suite has a layer of its own, and no seeded bug is in who may do what.
            &[
                "--skip",
                "file_owner::",
                "--skip",
                "file_socket::",
                "--skip",
                "file_neighbours::",
                "--skip",
                "same_second::",
            ],
        ),
        seconds: 600,
    },
    Layer { shown: "sim on SQLite at length", how: How::Here("sqlite-long"), seconds: 1_200 },
    Layer {
        shown: "real faults",
        how: How::Tests(
            &["-p", "fencehold-cli", "-p", "fencehold-proof", "--all-features", "--test", "cli"],
            // The rules of PostgreSQL are its own: no seeded bug is in them.
            &["faults::kills::", "faults::disk::", "--skip", "postgresql"],
        ),
        seconds: 900,
    },
];

/// How many histories are enough for nearly every bug that the disk brings out.
const SQLITE_SEEDS: u64 = 60;
/// For one that needs several troubles to meet, in an order that is seldom drawn.
const SQLITE_SEEDS_LONG: u64 = 1_000;

/// The signal that nobody can pass over.
const SIGKILL: i32 = 9;

/// How a layer came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// It had to be ended.
    Hung,
}

impl Layer {
    /// Builds it, where that is a step of its own: else what does not compile would pass for a bug that was noticed.
    pub(super) fn builds(&self) -> Result<(), String> {
        let How::Tests(words, _) = self.how else { return Ok(()) };
        let mut command = Command::new("cargo");
        command.arg("test").args(words).arg("--no-run").stdout(Stdio::null());
        match command.env_remove(VARIABLE).status() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!("`{}` cannot be built: {status}", self.shown)),
            Err(error) => Err(format!("cargo cannot be started: {error}")),
        }
    }

    /// Runs it with a bug on, or with none. An error: it could not be run at all.
    pub(super) fn run(&self, bug: Option<Bug>) -> Result<Outcome, String> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &self.seconds.to_string()]);
        match self.how {
            How::Here(name) => {
                let own =
                    std::env::current_exe().map_err(|error| format!("proof cannot find itself: {error}"))?;
                command.arg(own).args(["layer", name]);
            }
            How::Tests(words, for_tests) => {
                command.args(["cargo", "test", "-q"]).args(words).arg("--").args(for_tests);
            }
        }
        command.env_remove(VARIABLE);
        if let Some(bug) = bug {
            command.env(VARIABLE, format!("{bug:?}"));
        }
        let status = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        let status = status.map_err(|error| format!("timeout cannot be started: {error}"))?;
        outcome(status).ok_or_else(|| format!("`{}` cannot be run: {status}", self.shown))
    }
}

/// What the end of a layer under `timeout` means. `None`: it was never run.
fn outcome(status: ExitStatus) -> Option<Outcome> {
    match status.code() {
        Some(0) => Some(Outcome::Passed),
        // Its time was up, and it went, or had to be killed: `timeout` goes by the same signal, or says so.
        Some(124 | 137) => Some(Outcome::Hung),
        None if status.signal() == Some(SIGKILL) => Some(Outcome::Hung),
        // `timeout` itself went wrong, or found nothing to run.
        Some(125..=127) => None,
        _ => Some(Outcome::Failed),
    }
}

/// Runs one layer in this process. False, or a panic: it has noticed something. `None`: there is no such layer.
pub(super) fn here(name: &str) -> Option<bool> {
    match name {
        "race" => Some(races_hold()),
        "sim" => Some(sim::run(0, 600, Under::Drawn).broken.is_none()),
        "sqlite" => Some(sim::run(0, SQLITE_SEEDS, Under::Sqlite).broken.is_none()),
        "sqlite-long" => Some(sim::run(0, SQLITE_SEEDS_LONG, Under::Sqlite).broken.is_none()),
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
        ClockArena::new(move |clock| FileStore::open_or_create(room.path(), clock)).that_restarts()
    };
    for name in report.not_applicable {
        if let Some((theme @ "restart", case)) = name.split_once("::") {
            check(&factory, theme, case);
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ends(script: &str, seconds: &str) -> Option<Outcome> {
        let words = ["--kill-after=1", seconds, "sh", "-c", script];
        outcome(Command::new("timeout").args(words).status().expect("coreutils"))
    }

    #[test]
    fn a_layer_that_hangs_is_told_from_one_that_fails_and_from_one_that_cannot_be_run() {
        assert_eq!(ends("true", "60"), Some(Outcome::Passed));
        assert_eq!(ends("exit 101", "60"), Some(Outcome::Failed));
        assert_eq!(ends("kill -ABRT $$", "60"), Some(Outcome::Failed));
        assert_eq!(ends("exec sleep 60", "0.1"), Some(Outcome::Hung));
        assert_eq!(ends("trap '' TERM; while :; do :; done", "0.1"), Some(Outcome::Hung));
        assert_eq!(ends("exec /no/such/program", "60"), None);
    }
}
