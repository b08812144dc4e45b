//! cargo-deny, as `deny.toml` says.
//!
//! Not part of `test`: it takes minutes to install, and dependencies change seldom. Advisories are checked where the folder of their
//! databases is given: a new one is no fault of a change, and reading them needs the network.

use std::path::{Path, PathBuf};

use crate::{install, process, workspace};

/// Names the folder into which `cargo deny fetch` puts databases of advisories.
const DATABASE: &str = "ADVISORY_DB";

pub(crate) fn run() -> Result<(), String> {
    let path = install::path_with_crate("cargo-deny", "0.20.2")?;
    let database = std::env::var_os(DATABASE).map(PathBuf::from);
    let config = if let Some(database) = &database {
        with_advisories(database)?
    } else {
        println!("advisories are not checked: {DATABASE} names no folder of their databases");
        workspace::root().join("deny.toml")
    };
    let mut deny = process::cargo("deny --workspace --config");
    deny.arg(config).args(["check", "bans", "licenses", "sources"]);
    if database.is_some() {
        deny.args(["advisories", "--disable-fetch"]);
    }
    process::run(deny.env("PATH", path))
}

/// The configuration with the place of the database, which differs from machine to machine.
fn with_advisories(database: &Path) -> Result<PathBuf, String> {
    let fault = |error: std::io::Error| format!("deny.toml: {error}");
    let config = std::fs::read_to_string(workspace::root().join("deny.toml")).map_err(fault)?;
    let place = workspace::target()?.join("deny.toml");
    let advisories = format!("[advisories]\ndb-path = {:?}\n", database.display().to_string());
    std::fs::write(&place, format!("{config}\n{advisories}")).map_err(fault)?;
    Ok(place)
}
