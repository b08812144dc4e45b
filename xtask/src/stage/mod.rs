//! The stages, one file each, and how they are run: in order, timed, up to the first failure.

mod alike;
mod api;
mod bugs;
mod chaos;
mod clippy;
mod clocks;
mod crates;
mod deny;
mod dist;
mod docs;
mod doctests;
mod edits;
mod etcd_faults;
mod examples;
mod faults;
mod features;
mod format;
mod lines;
mod long;
mod neighbours;
mod package;
mod peers;
mod peers_http;
mod peers_postgres;
mod postgres;
mod programs;
mod proof;
mod races;
mod requests;
mod rustdoc;
mod same_second;
mod security;
mod semver;
mod servers;
mod shipped;
mod stored;
mod tests;
mod types;
mod upgrade;
mod words;

use std::time::Instant;

use crate::report::{self, StageOutcome, StageRow};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// The error is one sentence for people: what failed and, where it is known, what to do.
    run: fn() -> Result<(), String>,
}

pub(crate) const ALIKE: Stage = Stage { name: "alike", run: alike::run };
pub(crate) const API: Stage = Stage { name: "api", run: api::run };
pub(crate) const BUGS: Stage = Stage { name: "bugs", run: bugs::run };
pub(crate) const CHAOS: Stage = Stage { name: "chaos", run: chaos::run };
pub(crate) const CLIPPY: Stage = Stage { name: "clippy", run: clippy::run };
pub(crate) const CLOCKS: Stage = Stage { name: "clocks", run: clocks::run };
pub(crate) const CRATES: Stage = Stage { name: "crates", run: crates::run };
pub(crate) const DENY: Stage = Stage { name: "deny", run: deny::run };
pub(crate) const DIST: Stage = Stage { name: "dist", run: dist::run };
pub(crate) const DIST_DEV: Stage = Stage { name: "dist", run: dist::run_dev };
pub(crate) const DOCS: Stage = Stage { name: "docs", run: docs::run };
pub(crate) const DOCTESTS: Stage = Stage { name: "doctests", run: doctests::run };
pub(crate) const EDITS: Stage = Stage { name: "edits", run: edits::run };
pub(crate) const ETCD_FAULTS: Stage = Stage { name: "etcd-faults", run: etcd_faults::run };
pub(crate) const EXAMPLES: Stage = Stage { name: "examples", run: examples::run };
pub(crate) const FAULTS: Stage = Stage { name: "faults", run: faults::run };
pub(crate) const FEATURES: Stage = Stage { name: "features", run: features::run };
pub(crate) const FORMAT: Stage = Stage { name: "format", run: format::run };
pub(crate) const LINES: Stage = Stage { name: "lines", run: lines::run };
pub(crate) const LONG: Stage = Stage { name: "long", run: long::run };
pub(crate) const PACKAGE: Stage = Stage { name: "package", run: package::run };
pub(crate) const PEERS: Stage = Stage { name: "peers", run: peers::run };
pub(crate) const PEERS_HTTP: Stage = Stage { name: "http", run: peers_http::run };
pub(crate) const PEERS_POSTGRES: Stage = Stage { name: "postgres", run: peers_postgres::run };
pub(crate) const POSTGRES: Stage = Stage { name: "postgres", run: postgres::run };
pub(crate) const PROGRAMS: Stage = Stage { name: "programs", run: programs::run };
pub(crate) const PROOF: Stage = Stage { name: "proof", run: proof::run };
pub(crate) const PROOF_LARGE: Stage = Stage { name: "proof-large", run: proof::run_large };
pub(crate) const RACES: Stage = Stage { name: "races", run: races::run };
pub(crate) const REQUESTS: Stage = Stage { name: "requests", run: requests::run };
pub(crate) const RUSTDOC: Stage = Stage { name: "rustdoc", run: rustdoc::run };
pub(crate) const SAME_SECOND: Stage = Stage { name: "same-second", run: same_second::run };
pub(crate) const SECURITY: Stage = Stage { name: "security", run: security::run };
pub(crate) const SEMVER: Stage = Stage { name: "semver", run: semver::run };
pub(crate) const SERVERS: Stage = Stage { name: "servers", run: servers::run };
pub(crate) const SHIPPED: Stage = Stage { name: "shipped", run: shipped::run };
pub(crate) const STORED: Stage = Stage { name: "stored", run: stored::run };
pub(crate) const TESTS: Stage = Stage { name: "tests", run: tests::run };
pub(crate) const NEIGHBOURS: Stage = Stage { name: "neighbours", run: neighbours::run };
pub(crate) const TESTS_QUICK: Stage = Stage { name: "quick-tests", run: tests::run_quick };
pub(crate) const TYPES: Stage = Stage { name: "types", run: types::run };
pub(crate) const UPGRADE: Stage = Stage { name: "upgrade", run: upgrade::run };
pub(crate) const WORDS: Stage = Stage { name: "words", run: words::run };

#[derive(Debug)]
pub(crate) struct StageFailure {
    pub(crate) stage: &'static str,
    pub(crate) why: String,
}

/// Runs `stages` up to the first failure, and prints how long each took.
pub(crate) fn run_all(stages: &[Stage]) -> Result<(), StageFailure> {
    let mut rows = Vec::new();
    let mut failure = None;
    for stage in stages {
        if failure.is_some() {
            rows.push(StageRow { stage: stage.name, outcome: StageOutcome::NotRun });
            continue;
        }
        println!("\n=== {} ===", stage.name);
        let started = Instant::now();
        let result = (stage.run)();
        let took = started.elapsed();
        let outcome = if result.is_ok() { StageOutcome::Passed(took) } else { StageOutcome::Failed(took) };
        rows.push(StageRow { stage: stage.name, outcome });
        failure = result.err().map(|why| StageFailure { stage: stage.name, why });
    }
    print!("\n{}", report::table(&rows));
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod runner {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const PASSES: Stage = Stage { name: "passes", run: || Ok(()) };
    const FAILS: Stage = Stage { name: "fails", run: || Err("on purpose".to_owned()) };

    #[test]
    fn the_first_failure_is_named_and_ends_the_run() {
        static LATER_RUNS: AtomicU32 = AtomicU32::new(0);
        let count = || {
            LATER_RUNS.fetch_add(1, Ordering::SeqCst);
            Ok(())
        };
        let later = Stage { name: "later", run: count };

        let failure = run_all(&[PASSES, FAILS, later]).unwrap_err();

        assert_eq!((failure.stage, failure.why.as_str()), ("fails", "on purpose"));
        assert_eq!(LATER_RUNS.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_run_without_failure_is_ok() {
        assert!(run_all(&[PASSES, PASSES]).is_ok());
    }
}
