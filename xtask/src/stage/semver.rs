//! cargo-semver-checks: what changed in the public Rust API since the last release fits the number of the next.
//!
//! Not part of `test`: it takes minutes to install, and documents every crate twice.

use std::env;
use std::process::Command;

use crate::{install, process, workspace};

/// The commit to compare with, where that is not the last release.
const BASELINE: &str = "BASELINE";

pub(crate) fn run() -> Result<(), String> {
    let Some(baseline) = env::var(BASELINE).ok().or_else(last_release) else {
        println!("nothing is released yet; `{BASELINE}=COMMIT cargo xtask semver` compares with a commit");
        return Ok(());
    };
    let path = install::path_with_crate("cargo-semver-checks", "0.49.0")?;
    let mut check = process::cargo("semver-checks --workspace --all-features --baseline-rev");
    process::run(check.arg(baseline).env("PATH", path))
}

/// The newest tag of a version that this commit comes after.
fn last_release() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--tags", "--abbrev=0", "--match", "v[0-9]*"]);
    let said = git.current_dir(workspace::root()).output().ok()?;
    let tag = String::from_utf8_lossy(&said.stdout).trim().to_owned();
    (said.status.success() && !tag.is_empty()).then_some(tag)
}
