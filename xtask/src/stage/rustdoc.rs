//! The API documentation, with warnings as errors.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let args = ["doc", "--workspace", "--no-deps", "--all-features"];
    process::run(process::cargo(&args).env("RUSTDOCFLAGS", "-D warnings"))
}
