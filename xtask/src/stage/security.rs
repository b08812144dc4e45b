//! The tables of `docs/security.md`, written by the tests that see who may do what. As root, since they start processes of
//! other users.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let targets = ["--test", "file", "--test", "postgres", "--test", "server"];
    let mut tests = process::cargo(&["test", "--workspace", "--all-features"]);
    tests
        .args(targets)
        .args(["--", "the_matrix_of_"])
        .env("FENCEHOLD_WRITE_SECURITY", "1");
    process::run(&mut tests)
}
