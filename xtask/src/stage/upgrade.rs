//! An earlier version beside this one: its workers live through a migration, and both use one directory.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{process, workspace};

/// The earlier version: the oldest whose programs work on the schema of this one. Its schema is 30, from which on that is promised.
const EARLIER: &str = "0b8e808c98786e07edaf6fb51369db691ef1679d";

pub(crate) fn run() -> Result<(), String> {
    let place = workspace::target()?.join("upgrade").join(EARLIER);
    let source = place.join("source");
    unpack(EARLIER, &source)?;
    let built = place.join("built");
    let words = "build --package fencehold-cli --bin fencehold";
    process::run(process::cargo(words).current_dir(&source).env("CARGO_TARGET_DIR", &built))?;
    let earlier: PathBuf = built.join("debug").join("fencehold");
    let args = "test --workspace --all-features --test cli upgrade::";
    process::run(process::cargo(args).env("FENCEHOLD_EARLIER", earlier))
}

/// The files of a commit, as git has them.
pub(super) fn unpack(commit: &str, source: &Path) -> Result<(), String> {
    std::fs::create_dir_all(source).map_err(|error| format!("{}: {error}", source.display()))?;
    let mut archive = Command::new("git");
    archive
        .args(["archive", "--format=tar", commit])
        .current_dir(workspace::root())
        .stdout(Stdio::piped());
    let mut archive = archive.spawn().map_err(|error| format!("git cannot be started: {error}"))?;
    let mut tar = Command::new("tar");
    tar.args(["-x", "-C"])
        .arg(source)
        .stdin(archive.stdout.take().map_or(Stdio::null(), Stdio::from));
    let unpacked = tar.status().map_err(|error| format!("tar cannot be started: {error}"))?;
    let read = archive.wait().map_err(|error| format!("git: {error}"))?;
    if read.success() && unpacked.success() {
        return Ok(());
    }
    Err(format!("commit {commit} cannot be read; a shallow clone needs `git fetch --unshallow`"))
}
