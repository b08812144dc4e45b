//! The API documentation, with warnings as errors.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let words = "doc --workspace --no-deps --all-features";
    process::run(process::cargo(words).env("RUSTDOCFLAGS", "-D warnings"))
}
