//! rustfmt, as `rustfmt.toml` says.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    process::need_subcommand("fmt", "rustup component add rustfmt")?;
    process::run(&mut process::cargo("fmt --all --check"))
        .map_err(|error| format!("{error}; `cargo fmt --all` puts the format right"))
}
