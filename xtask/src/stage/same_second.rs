//! A million jobs that are scheduled for the same second. `cargo xtask test` has twenty thousand.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let words = "test --release --package fencehold-store-file --test file -- same_second:: --nocapture";
    process::run(process::cargo(words).env("FENCEHOLD_SAME_SECOND_JOBS", "1000000"))
}
