//! cargo-deny, as `deny.toml` says.
//!
//! Not part of `test`: it takes minutes to install, and dependencies change seldom. Nor are advisories part of it: a
//! new one is no fault of a change, and reading them needs the network.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    process::need_subcommand("deny", "cargo install --locked cargo-deny")?;
    process::run(&mut process::cargo("deny --workspace check bans licenses sources"))
}
