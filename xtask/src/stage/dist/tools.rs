//! What packing needs: from PyPI and crates.io, in places of their own in the target folder.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::stage::servers;
use crate::{install, process, workspace};

/// Builds against an old glibc; makes wheels; checks their tags.
const PYPI: &[&str] =
    &["cargo-zigbuild==0.24.0", "ziglang==0.17.0", "hatchling==1.33.0", "auditwheel==6.8.2"];

pub(super) fn python_tools() -> Result<PathBuf, String> {
    servers::from_pypi("dist", PYPI)
}

pub(super) fn path_with_python_tools() -> Result<OsString, String> {
    install::before_the_path(&python_tools()?.join("bin"))
}

/// Has cargo-deb.
pub(super) fn path_with_cargo_tools() -> Result<OsString, String> {
    install::path_with_crate("cargo-deb", "3.8.0")
}

/// The list of everything that is in the binary, in the form of `CycloneDX`.
pub(super) fn software_bill(out: &Path, version: &str) -> Result<(), String> {
    let tools = install::path_with_crate("cargo-cyclonedx", "0.5.9")?;
    let name = format!("fencehold-{version}.cdx");
    let mut bill = process::cargo("cyclonedx --format json --manifest-path crates/cli/Cargo.toml");
    process::run(bill.args(["--override-filename", &name]).env("PATH", tools))?;
    // It is written beside the manifest of each crate; the binary's has them all.
    for entry in std::fs::read_dir(workspace::root().join("crates"))
        .into_iter()
        .flatten()
        .flatten()
    {
        let file = entry.path().join(format!("{name}.json"));
        if entry.file_name() == "cli" {
            super::copy(&file, &out.join(format!("{name}.json")))?;
        }
        let _ = std::fs::remove_file(file);
    }
    Ok(())
}
