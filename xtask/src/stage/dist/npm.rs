//! The packages for npm: one with the binary for each platform, and one that runs it.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Build, archive, copy, make_dir, write};
use crate::process;

pub(super) fn packages(build: &Build) -> Result<(), String> {
    let Some(platform) = build.platform.npm else { return Ok(()) };
    let folder = archive::scratch(build, &format!("npm/{platform}"))?;
    make_dir(&folder.join("bin"))?;
    copy(&build.binary(), &folder.join("bin/fencehold"))?;
    pack(build, &folder)?;
    pack(build, &archive::scratch(build, "npm/fencehold")?)
}

/// The files of the project have 0.0.0 where the version belongs.
fn pack(build: &Build, folder: &Path) -> Result<(), String> {
    let manifest = folder.join("package.json");
    let text = fs::read_to_string(&manifest).map_err(|error| format!("{}: {error}", manifest.display()))?;
    write(&manifest, text.replace("0.0.0", build.version))?;
    process::run(
        Command::new("npm")
            .args(["pack", "--silent", "--ignore-scripts", "--pack-destination"])
            .arg(&build.out)
            .current_dir(folder),
    )
}
