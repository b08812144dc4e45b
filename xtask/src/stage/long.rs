//! All tests in release, with those that take long.
//!
//! A test that takes long looks for `FENCEHOLD_LONG` and does nothing, or less, without it.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let args = ["test", "--workspace", "--all-features", "--release", "--tests", "--no-fail-fast"];
    process::run(process::cargo(&args).env("FENCEHOLD_LONG", "1"))
}
