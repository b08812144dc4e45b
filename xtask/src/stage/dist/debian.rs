//! The Debian package, as `package.metadata.deb` of `crates/cli` describes it.

use super::{Build, tools};
use crate::process;

/// The version before this one, as far as dpkg knows: what an upgrade starts from in the trial.
const EARLIER: &str = "0.0.1-1";

pub(super) fn packages(build: &Build) -> Result<(), String> {
    if build.platform.debian.is_none() {
        return Ok(());
    }
    package(build, &format!("{}-1", build.version), &build.out, build.dev)?;
    let trial = super::trial::folder()?;
    super::make_dir(&trial)?;
    package(build, EARLIER, &trial, true)
}

/// `fast`: lightly compressed, for packages that no one downloads.
fn package(build: &Build, version: &str, to: &std::path::Path, fast: bool) -> Result<(), String> {
    let mut deb = process::cargo("deb --package fencehold-cli --no-build --no-strip --target");
    deb.arg(build.platform.target)
        .args(["--deb-version", version, "--output"])
        .arg(to)
        .env("PATH", tools::path_with_cargo_tools()?);
    if fast {
        deb.arg("--fast");
    }
    process::run(&mut deb)
}
