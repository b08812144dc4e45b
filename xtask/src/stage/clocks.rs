//! The chaos test of jobs for ten minutes, on a directory and on PostgreSQL, while the wall clocks of all workers are set forward
//! and back by up to a day. `FENCEHOLD_CHAOS_SECONDS` says otherwise.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let seconds = std::env::var("FENCEHOLD_CHAOS_SECONDS").unwrap_or_else(|_| "600".to_owned());
    let mut tests = process::cargo("test --workspace --all-features --test client -- --nocapture");
    tests.args(["chaos::whatever_dies_or_stalls", "chaos::on_postgres"]);
    process::run(tests.env("FENCEHOLD_CHAOS_SECONDS", seconds).env("FENCEHOLD_CHAOS_CLOCKS", "1"))
}
