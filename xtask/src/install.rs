//! Debian packages and programs of crates.io that a stage needs: found, or installed without asking, or named in the error.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::{env, fs};

use crate::{process, workspace};

/// A PATH on which a program of crates.io is found, compiled once.
pub(crate) fn path_with_crate(name: &str, version: &str) -> Result<OsString, String> {
    let folder = workspace::target()?.join("servers/cargo");
    let mut install = process::cargo("install --locked --quiet --root");
    // What it compiles is of no use afterwards: it goes to a temporary place.
    install
        .arg(&folder)
        .arg(format!("{name}@{version}"))
        .env_remove("CARGO_TARGET_DIR");
    process::run(&mut install)?;
    before_the_path(&folder.join("bin"))
}

/// The PATH with a folder before everything else.
pub(crate) fn before_the_path(folder: &Path) -> Result<OsString, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::join_paths(std::iter::once(folder.to_owned()).chain(env::split_paths(&path)))
        .map_err(|error| error.to_string())
}

/// Makes sure that every package is there. A program of the package's name counts, however it was installed.
pub(crate) fn ensure(packages: &[&str]) -> Result<(), String> {
    let missing = missing(packages);
    if missing.is_empty() {
        return Ok(());
    }
    println!("missing: {}", missing.join(" "));
    apt_get_update_once();
    let install = ["install", "--yes", "--no-install-recommends"].iter().chain(&missing).copied();
    apt_get(&install.collect::<Vec<_>>())
        .map_err(|why| format!("{why}; install by hand: `apt-get install {}`", missing.join(" ")))
}

/// Makes sure that a program is there, however it was installed; `package` has it.
pub(crate) fn ensure_program(program: &str, package: &str) -> Result<(), String> {
    if is_on_path(program) { Ok(()) } else { ensure(&[package]) }
}

/// Fetches packages into a folder, without installing anything.
pub(crate) fn download(folder: &Path, packages: &[&str]) -> Result<(), String> {
    apt_get_update_once();
    let mut command = Command::new("apt-get");
    process::run(command.arg("download").args(packages).current_dir(folder))
}

fn missing<'a>(packages: &[&'a str]) -> Vec<&'a str> {
    packages
        .iter()
        .copied()
        .filter(|package| !is_on_path(package) && !is_installed(package))
        .collect()
}

fn is_on_path(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// Asked of dpkg, for packages whose programs are called otherwise or are not on the path (`postgresql`).
fn is_installed(package: &str) -> bool {
    let mut query = Command::new("dpkg-query");
    query
        .args(["--show", "--showformat", "${db:Status-Status}", package])
        .stderr(Stdio::null());
    query.output().is_ok_and(|answer| answer.stdout == b"installed")
}

/// Once a run. Old lists may still do, so a failure is only said: the installation itself decides.
fn apt_get_update_once() {
    static UPDATED: OnceLock<()> = OnceLock::new();
    UPDATED.get_or_init(|| {
        if let Err(why) = apt_get(&["update"]) {
            eprintln!("the package lists may be old: {why}");
        }
    });
}

fn apt_get(args: &[&str]) -> Result<(), String> {
    if !is_on_path("apt-get") {
        return Err("this system has no apt-get".to_owned());
    }
    // Another installation, as those that a system makes by itself, is waited for.
    let apt_get = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "-o", "DPkg::Lock::Timeout=300"];
    let mut command = if is_root() {
        Command::new(apt_get[0])
    } else if is_on_path("sudo") {
        // `-n`: never wait for a password that no one is there to type.
        let mut sudo = Command::new("sudo");
        sudo.args(["-n", apt_get[0]]);
        sudo
    } else {
        return Err("installing needs root, and there is no sudo".to_owned());
    };
    process::run(command.args(&apt_get[1..]).args(args).stdin(Stdio::null()))
}

pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|me| me.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_neither_on_the_path_nor_installed_is_missing() {
        assert_eq!(missing(&["sh", "no-such-package-here"]), ["no-such-package-here"]);
    }
}
