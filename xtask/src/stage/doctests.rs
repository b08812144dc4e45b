//! The examples in the documentation of public items, and in the README.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    process::run(&mut process::linted_cargo("test --workspace --all-features --doc --no-fail-fast")?)
}
