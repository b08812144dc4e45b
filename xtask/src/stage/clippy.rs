//! Clippy on everything, with warnings as errors.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    process::need_subcommand("clippy", "rustup component add clippy")?;
    process::run(&mut process::cargo("clippy --workspace --all-targets --all-features -- -D warnings"))
}
