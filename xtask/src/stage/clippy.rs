//! Everything is compiled once, by Clippy, with warnings as errors. Tests, examples and doc tests run what was compiled here: a build for
//! Clippy alone would go through the workspace a second time.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    process::run(&mut process::linted_cargo("build --workspace --all-targets --all-features")?)
}
