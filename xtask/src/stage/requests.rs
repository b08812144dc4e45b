//! Requests made up from the server's document, hundreds for each operation. `cargo xtask test` has a few of each.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let words = "test --workspace --all-features --test server -- schemathesis::";
    process::run(process::cargo(words).env("FENCEHOLD_REQUEST_EXAMPLES", "300"))
}
