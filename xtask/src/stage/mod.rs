//! The stages, one file each, and what is known of each.

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

use crate::lanes;
use crate::report;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Stage {
    pub(crate) name: &'static str,
    /// The error is one sentence for people: what failed and, where it is known, what to do.
    run: fn() -> Result<(), String>,
    /// Whether it may run while stages that stand later go on: one that mostly waits, or leaves processors unused.
    pub(crate) beside: bool,
    /// What must have passed before, of the stages that run at all.
    pub(crate) after: &'static [&'static str],
}

impl Stage {
    pub(crate) const fn new(name: &'static str, run: fn() -> Result<(), String>) -> Self {
        Stage { name, run, beside: false, after: &[] }
    }

    /// The same beside others, once these have passed.
    pub(crate) const fn beside(self, after: &'static [&'static str]) -> Self {
        Stage { beside: true, after, ..self }
    }

    /// The same once these have passed, which run beside others.
    pub(crate) const fn after(self, after: &'static [&'static str]) -> Self {
        Stage { after, ..self }
    }

    /// Runs it, here and now.
    pub(crate) fn run(&self) -> Result<(), String> {
        (self.run)()
    }
}

pub(crate) const ALIKE: Stage = Stage::new("alike", alike::run);
pub(crate) const API: Stage = Stage::new("api", api::run);
pub(crate) const BUGS: Stage = Stage::new("bugs", bugs::run);
pub(crate) const CHAOS: Stage = Stage::new("chaos", chaos::run);
pub(crate) const CLIPPY: Stage = Stage::new("clippy", clippy::run);
pub(crate) const CLOCKS: Stage = Stage::new("clocks", clocks::run);
pub(crate) const CRATES: Stage = Stage::new("crates", crates::run);
pub(crate) const DENY: Stage = Stage::new("deny", deny::run);
pub(crate) const DIST: Stage = Stage::new("dist", dist::run);
pub(crate) const DIST_DEV: Stage = Stage::new("dist", dist::run_dev);
pub(crate) const DOCS: Stage = Stage::new("docs", docs::run);
pub(crate) const DOCTESTS: Stage = Stage::new("doctests", doctests::run);
pub(crate) const EDITS: Stage = Stage::new("edits", edits::run);
pub(crate) const ETCD_FAULTS: Stage = Stage::new("etcd-faults", etcd_faults::run);
pub(crate) const EXAMPLES: Stage = Stage::new("examples", examples::run);
pub(crate) const FAULTS: Stage = Stage::new("faults", faults::run);
pub(crate) const FEATURES: Stage = Stage::new("features", features::run);
pub(crate) const FORMAT: Stage = Stage::new("format", format::run);
pub(crate) const LINES: Stage = Stage::new("lines", lines::run);
pub(crate) const LONG: Stage = Stage::new("long", long::run);
pub(crate) const PACKAGE: Stage = Stage::new("package", package::run);
pub(crate) const PEERS: Stage = Stage::new("peers", peers::run);
pub(crate) const PEERS_HTTP: Stage = Stage::new("http", peers_http::run);
pub(crate) const PEERS_POSTGRES: Stage = Stage::new("postgres", peers_postgres::run);
pub(crate) const POSTGRES: Stage = Stage::new("postgres", postgres::run);
pub(crate) const PROGRAMS: Stage = Stage::new("programs", programs::run);
pub(crate) const PROOF: Stage = Stage::new("proof", proof::run);
pub(crate) const PROOF_LARGE: Stage = Stage::new("proof-large", proof::run_large);
pub(crate) const RACES: Stage = Stage::new("races", races::run);
pub(crate) const REQUESTS: Stage = Stage::new("requests", requests::run);
pub(crate) const RUSTDOC: Stage = Stage::new("rustdoc", rustdoc::run);
pub(crate) const SAME_SECOND: Stage = Stage::new("same-second", same_second::run);
pub(crate) const SECURITY: Stage = Stage::new("security", security::run);
pub(crate) const SEMVER: Stage = Stage::new("semver", semver::run);
pub(crate) const SERVERS: Stage = Stage::new("servers", servers::run);
pub(crate) const SHIPPED: Stage = Stage::new("shipped", shipped::run);
pub(crate) const STORED: Stage = Stage::new("stored", stored::run);
pub(crate) const TESTS: Stage = Stage::new("tests", tests::run);
pub(crate) const NEIGHBOURS: Stage = Stage::new("neighbours", neighbours::run);
pub(crate) const TESTS_QUICK: Stage = Stage::new("quick-tests", tests::run_quick);
pub(crate) const TYPES: Stage = Stage::new("types", types::run);
pub(crate) const UPGRADE: Stage = Stage::new("upgrade", upgrade::run);
pub(crate) const WORDS: Stage = Stage::new("words", words::run);

#[derive(Debug)]
pub(crate) struct StageFailure {
    pub(crate) stage: &'static str,
    pub(crate) why: String,
}

/// Runs `stages` up to the first failure, and prints how long each took.
pub(crate) fn run_all(stages: &[Stage]) -> Result<(), StageFailure> {
    let (rows, took, failure) = lanes::run(stages);
    print!("\n{}", report::table(&rows, took));
    failure.map_or(Ok(()), Err)
}
