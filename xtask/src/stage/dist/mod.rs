//! Packages that people install: a tarball, a wheel for PyPI, two packages for npm, a Debian package and a container image, made
//! into `dist/` and tried in a Debian of their own that has no Rust and no network.
//!
//! `cargo xtask dist` builds the binary against an old glibc, so that it runs on every distribution of the last years. `dist --dev`
//! packs the one that tests have built already: the same packages, larger, and for this machine.

mod archive;
mod debian;
mod image;
mod licenses;
mod npm;
mod python;
mod tools;
mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{process, workspace};

/// Where a binary runs, and what each kind of package calls that.
struct Platform {
    target: &'static str,
    /// The oldest glibc that it needs; musl is linked in.
    glibc: Option<&'static str>,
    wheel: &'static str,
    npm: Option<&'static str>,
    debian: Option<&'static str>,
}

const PLATFORMS: [Platform; 4] = [
    Platform {
        target: "x86_64-unknown-linux-gnu",
        glibc: Some("2.17"),
        wheel: "manylinux_2_17_x86_64.manylinux2014_x86_64",
        npm: Some("linux-x64"),
        debian: Some("amd64"),
    },
    Platform {
        target: "aarch64-unknown-linux-gnu",
        glibc: Some("2.17"),
        wheel: "manylinux_2_17_aarch64.manylinux2014_aarch64",
        npm: Some("linux-arm64"),
        debian: Some("arm64"),
    },
    Platform {
        target: "x86_64-unknown-linux-musl",
        glibc: None,
        wheel: "musllinux_1_1_x86_64",
        npm: None,
        debian: None,
    },
    Platform {
        target: "aarch64-unknown-linux-musl",
        glibc: None,
        wheel: "musllinux_1_1_aarch64",
        npm: None,
        debian: None,
    },
];

/// One binary, and where its packages go.
struct Build {
    platform: &'static Platform,
    version: &'static str,
    /// For tests: the binary needs this machine's glibc.
    dev: bool,
    /// `dist`.
    out: PathBuf,
    /// What several packages have in common: the binary, manual pages, completions, licences. Under `dist`, where
    /// `package.metadata.deb` of `crates/cli` finds it.
    files: PathBuf,
}

pub(crate) fn run() -> Result<(), String> {
    let out = empty_dist()?;
    for platform in &PLATFORMS {
        if !has_standard_library(platform)? {
            println!("{0}: not built; its target is missing: `rustup target add {0}`", platform.target);
            continue;
        }
        let binary = build(platform)?;
        pack(&Build::new(platform, false, &out), &binary)?;
    }
    tools::software_bill(&out, version())?;
    finish(&out)
}

pub(crate) fn run_dev() -> Result<(), String> {
    let out = empty_dist()?;
    process::run(&mut process::cargo("build --locked --workspace --all-features --bin fencehold"))?;
    pack(&Build::new(&PLATFORMS[0], true, &out), &workspace::built("debug")?.join("fencehold"))?;
    finish(&out)
}

/// Every crate has the version of the workspace, xtask too.
fn version() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

impl Build {
    fn new(platform: &'static Platform, dev: bool, out: &Path) -> Self {
        Self { platform, version: version(), dev, out: out.to_owned(), files: out.join("files") }
    }

    fn binary(&self) -> PathBuf {
        self.files.join("fencehold")
    }
}

fn empty_dist() -> Result<PathBuf, String> {
    let out = workspace::root().join("dist");
    let _ = fs::remove_dir_all(&out);
    // What an earlier trial left when it failed, for people to look at.
    let _ = fs::remove_dir_all(trial::folder()?);
    make_dir(&out)?;
    Ok(out)
}

fn has_standard_library(platform: &Platform) -> Result<bool, String> {
    let folder = process::output(Command::new("rustc").args([
        "--print",
        "target-libdir",
        "--target",
        platform.target,
    ]))?;
    Ok(Path::new(folder.trim()).is_dir())
}

/// The linker and the headers of an old glibc come with zig.
fn build(platform: &Platform) -> Result<PathBuf, String> {
    let target = match platform.glibc {
        Some(version) => format!("{}.{version}", platform.target),
        None => platform.target.to_owned(),
    };
    let mut cargo =
        process::cargo("zigbuild --locked --profile dist --package fencehold-cli --bin fencehold --target");
    process::run(cargo.arg(target).env("PATH", tools::path_with_python_tools()?))?;
    Ok(workspace::target()?.join(platform.target).join("dist/fencehold"))
}

fn pack(build: &Build, binary: &Path) -> Result<(), String> {
    collect(build, binary)?;
    archive::tarball(build)?;
    python::wheel(build)?;
    npm::packages(build)?;
    debian::packages(build)?;
    image::archive(build)?;
    Ok(())
}

/// Puts what the packages have in common into one place.
fn collect(build: &Build, binary: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(&build.files);
    make_dir(&build.files.join("completions"))?;
    copy(binary, &build.binary())?;
    process::run(Command::new("strip").arg(build.binary()))?;
    // Those of this machine can be asked. Pages and completions are the same everywhere.
    let ours = workspace::built("debug")?.join("fencehold");
    let speaks = if build.platform.target == PLATFORMS[0].target { build.binary() } else { ours };
    process::run(Command::new(&speaks).arg("man").arg(build.files.join("man")))?;
    for (shell, name) in [("bash", "fencehold.bash"), ("zsh", "_fencehold"), ("fish", "fencehold.fish")] {
        let script = process::output(Command::new(&speaks).args(["completions", shell]))?;
        write(&build.files.join("completions").join(name), script)?;
    }
    write(&build.files.join("THIRD_PARTY.md"), licenses::third_party(build.platform.target)?)
}

/// Checksums, sizes, and the trial of what was packed for this machine.
fn finish(out: &Path) -> Result<(), String> {
    fs::remove_dir_all(out.join("files")).map_err(|error| format!("{}: {error}", out.display()))?;
    archive::checksums(out)?;
    trial::run(out)
}

fn make_dir(path: &Path) -> Result<(), String> {
    fs::create_dir_all(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    fs::copy(from, to)
        .map(drop)
        .map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
}

fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<(), String> {
    fs::write(path, text).map_err(|error| format!("{}: {error}", path.display()))
}

/// Copies a folder of the project to a place where a package is put together.
fn copy_tree(from: &str, to: &Path) -> Result<(), String> {
    let _ = fs::remove_dir_all(to);
    if let Some(parent) = to.parent() {
        make_dir(parent)?;
    }
    process::run(Command::new("cp").arg("-r").arg(workspace::root().join(from)).arg(to))
}
