//! Unit and integration tests.
//!
//! `--tests` leaves out the doc tests, which are a stage of their own. Workspace and features are the same as for doc
//! tests and examples, so that one build of the dependencies serves all of them.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let args = ["test", "--workspace", "--all-features", "--tests", "--no-fail-fast"];
    process::run(&mut process::cargo(&args))
}
