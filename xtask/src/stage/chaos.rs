//! The chaos test of jobs for a whole minute. `cargo xtask test` has it for a third of that.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let words = "test --package fencehold --all-features --test client -- --nocapture chaos::";
    process::run(process::cargo(words).env("FENCEHOLD_CHAOS_SECONDS", "60"))
}
