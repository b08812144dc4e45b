//! rustfmt, as `rustfmt.toml` says.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    process::need_subcommand("fmt", "rustup component add rustfmt")?;
    let check = |words: &str| {
        let checked = process::run(&mut process::cargo(&format!("{words} --check")));
        checked.map_err(|error| format!("{error}; `cargo {words}` puts the format right"))
    };
    check("fmt --all")?;
    check("fmt --manifest-path examples/Cargo.toml --all")
}
