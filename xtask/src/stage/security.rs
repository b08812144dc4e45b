//! The tables of `docs/security.md`, written by the tests that see who may do what. As root, since they start processes of
//! other users.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let words = "test --workspace --all-features --test file --test postgres --test server -- the_matrix_of_";
    process::run(process::cargo(words).env("FENCEHOLD_WRITE_SECURITY", "1"))
}
