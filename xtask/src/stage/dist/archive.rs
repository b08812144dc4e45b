//! The tarball, and the checksums of everything.

use std::path::Path;
use std::process::Command;

use super::{Build, copy, copy_tree, make_dir, write};
use crate::{process, workspace};

/// Named as `package.metadata.binstall` of `crates/cli` says.
pub(super) fn tarball(build: &Build) -> Result<(), String> {
    let name = format!("fencehold-{}-{}", build.version, build.platform.target);
    let folder = build.files.join("tarball").join(&name);
    make_dir(&folder)?;
    copy(&build.binary(), &folder.join("fencehold"))?;
    copy(&build.files.join("THIRD_PARTY.md"), &folder.join("THIRD_PARTY.md"))?;
    for file in ["LICENSE", "README.md", "CHANGELOG.md", "deploy/fencehold.service", "deploy/server.toml"] {
        let from = workspace::root().join(file);
        copy(&from, &folder.join(from.file_name().unwrap_or_default()))?;
    }
    for part in ["man", "completions"] {
        process::run(Command::new("cp").arg("-r").arg(build.files.join(part)).arg(&folder))?;
    }
    pack(&build.files.join("tarball"), &name, &build.out.join(format!("{name}.tar.gz")))
}

/// The same bytes from the same files, on any machine and at any time.
pub(super) fn pack(folder: &Path, what: &str, to: &Path) -> Result<(), String> {
    let mut tar = Command::new("tar");
    tar.arg("-C").arg(folder).args([
        "--create",
        "--gzip",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
        "--mtime=@0",
        "--file",
    ]);
    process::run(tar.arg(to).arg(what))
}

pub(super) fn checksums(out: &Path) -> Result<(), String> {
    let sums = process::output(Command::new("sh").current_dir(out).args(["-c", "sha256sum -- *"]))?;
    write(&out.join("SHA256SUMS"), sums)?;
    process::run(Command::new("ls").args(["-l", "--human-readable", "--no-group"]).arg(out))
}

/// A scratch copy of a folder of `deploy/packages`, with the licences beside.
pub(super) fn scratch(build: &Build, from: &str) -> Result<std::path::PathBuf, String> {
    let folder = build.files.join("scratch").join(from);
    copy_tree(&format!("deploy/packages/{from}"), &folder)?;
    copy(&workspace::root().join("LICENSE"), &folder.join("LICENSE"))?;
    copy(&build.files.join("THIRD_PARTY.md"), &folder.join("THIRD_PARTY.md"))?;
    Ok(folder)
}
