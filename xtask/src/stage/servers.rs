//! The servers that tests start: found, or installed, or named in the error.
//!
//! Debian's packages go where Debian puts them, but for those whose servers it would start at once. These, and what comes from
//! PyPI and npm, go into a private place in the target folder (`servers/debian`, `servers/python`, `servers/openapi`,
//! `servers/node`), where the tests look for it: nothing of the user's own is touched, and `cargo clean` takes it away.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::{install, process, workspace};

/// Programs, and the Debian packages that have them.
const DEBIAN: &[(&str, &str)] = &[
    // A browser for the dashboard, and what drives it.
    ("chromium", "chromium"),
    ("chromedriver", "chromium-driver"),
    ("etcd", "etcd-server"),
    // Sets the wall clock of one process.
    ("faketime", "faketime"),
    ("node", "nodejs"),
    ("npm", "npm"),
    // Between tests and PostgreSQL.
    ("pgbouncer", "pgbouncer"),
    ("python3", "python3"),
    // Has a chosen system call of a process fail.
    ("strace", "strace"),
];

/// A proxy before the dashboard; and Prometheus, whose own tool has the last word on our metrics and alerts.
const UNPACKED: &[&str] = &["nginx", "prometheus"];

/// S3 (moto, with the two packages that its server needs for it: `moto[server]` has thirty more, for other services); a store that does not keep
/// its preconditions, which the probe must refuse; what Python people speak to PostgreSQL with; and a client that makes up requests from the
/// server's own document.
const PYPI: &[&str] = &[
    "moto[s3]==5.2.5",
    "flask==3.1.3",
    "flask-cors==6.0.5",
    "gcp-storage-emulator==2026.7.19",
    "psycopg[binary]==3.2.13",
    "schemathesis==4.32.5",
];

/// What checks the server's own document, and generates a client from it: apart, since they need other versions of the same.
const PYPI_OPENAPI: &[&str] = &["openapi-python-client==0.29.1", "openapi-spec-validator==0.9.0"];

/// Azure Blob Storage; what generates a client for TypeScript, and compiles it; and what judges how accessible the dashboard is.
const NPM: &[&str] = &[
    "azurite@3.35.0",
    "@hey-api/openapi-ts@0.95.0",
    "@types/node@26.6.6",
    "axe-core@4.11.1",
    "typescript@5.9.3",
];

pub(crate) fn run() -> Result<(), String> {
    for (program, package) in DEBIAN {
        install::ensure_program(program, package)?;
    }
    // Its programs are not on the path: Debian keeps those of several versions side by side.
    install::ensure(&["postgresql"])?;
    forget_clocks();
    once(&place("debian")?, UNPACKED, unpack)?;
    once(&place("python")?, PYPI, install_python)?;
    once(&place("openapi")?, PYPI_OPENAPI, install_python)?;
    from_npm("node", NPM).map(drop)
}

/// A process with a wall clock of its own leaves marks by its number, and does not start where it finds them. Those of processes
/// that were killed are removed: sooner or later another has the number.
fn forget_clocks() {
    for entry in fs::read_dir("/dev/shm").into_iter().flatten().flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let number = name
            .strip_prefix("faketime_shm_")
            .or_else(|| name.strip_prefix("sem.faketime_sem_"));
        if number.is_some_and(|number| !Path::new("/proc").join(number).exists()) {
            // Another's, if it cannot be: then it stays.
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// A Debian of its own with these packages, as an archive.
pub(super) fn debian_root(packages: &[&str]) -> Result<PathBuf, String> {
    let folder = place("debian-root")?;
    once(&folder, packages, bootstrap)?;
    Ok(folder.join("root.tar"))
}

/// Packages from PyPI, in a folder of their own.
pub(super) fn from_pypi(folder: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = place(folder)?;
    once(&folder, packages, install_python)?;
    Ok(folder)
}

/// Packages from npm, in a folder of their own.
pub(super) fn from_npm(folder: &str, packages: &[&str]) -> Result<PathBuf, String> {
    let folder = place(folder)?;
    once(&folder, packages, install_node)?;
    Ok(folder)
}

fn place(folder: &str) -> Result<PathBuf, String> {
    Ok(workspace::target()?.join("servers").join(folder))
}

/// Installs `packages` into `folder` unless exactly these are there already.
fn once(
    folder: &Path,
    packages: &[&str],
    install: fn(&Path, &[&str]) -> Result<(), String>,
) -> Result<(), String> {
    let note = folder.join("installed");
    let wanted = packages.join("\n");
    if fs::read_to_string(&note).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    // What was left half done, or has other versions, is not built upon.
    let _ = fs::remove_dir_all(folder);
    let fault = |path: &Path| {
        let path = path.display().to_string();
        move |error| format!("{path}: {error}")
    };
    fs::create_dir_all(folder).map_err(fault(folder))?;
    install(folder, packages)
        .map_err(|why| format!("{why}; the servers that tests start could not be installed"))?;
    fs::write(&note, wanted).map_err(fault(&note))
}

/// Packages from Debian, only unpacked.
fn unpack(folder: &Path, packages: &[&str]) -> Result<(), String> {
    install::download(folder, packages)?;
    let found = fs::read_dir(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    for package in found.flatten().map(|entry| entry.path()) {
        process::run(Command::new("dpkg").arg("-x").arg(&package).arg(folder))?;
        let _ = fs::remove_file(package);
    }
    Ok(())
}

/// From where this machine has its own packages.
fn bootstrap(folder: &Path, packages: &[&str]) -> Result<(), String> {
    install::ensure(&["mmdebstrap"])?;
    let sources = ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"];
    let sources = sources.into_iter().find(|path| Path::new(path).is_file());
    let sources = sources.ok_or("this system has no list of Debian's packages")?;
    let system = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let suite = system.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let suite = suite.ok_or("/etc/os-release does not name the release of Debian")?;
    let include = format!("--include={}", packages.join(","));
    let mut bootstrap = Command::new("mmdebstrap");
    bootstrap
        .args(["--quiet", "--variant=minbase", &include, suite])
        .arg(folder.join("root.tar"))
        .arg(sources);
    process::run(&mut bootstrap)
}

fn install_python(folder: &Path, packages: &[&str]) -> Result<(), String> {
    let mut can = Command::new("python3");
    can.args(["-c", "import ensurepip, venv"])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if !can.status().is_ok_and(|status| status.success()) {
        // Debian's python3 comes without.
        install::ensure(&["python3-venv"])?;
    }
    process::run(Command::new("python3").args(["-m", "venv"]).arg(folder))?;
    let pip: PathBuf = folder.join("bin/pip");
    process::run(
        Command::new(pip)
            .args(["install", "--quiet", "--disable-pip-version-check"])
            .args(packages),
    )
}

fn install_node(folder: &Path, packages: &[&str]) -> Result<(), String> {
    process::run(
        Command::new("npm")
            .args(["install", "--silent", "--no-audit", "--no-fund", "--prefix"])
            .arg(folder)
            .args(packages),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_already_is_not_installed_again() {
        let folder = std::env::temp_dir().join(format!("fencehold-servers-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        let writes = |folder: &Path, _: &[&str]| {
            fs::write(folder.join("program"), "").map_err(|error| error.to_string())
        };
        let fails = |_: &Path, _: &[&str]| Err("asked to install".to_owned());
        once(&folder, &["one==1"], writes).unwrap();
        once(&folder, &["one==1"], fails).unwrap();
        let why = once(&folder, &["one==2"], fails).unwrap_err();
        assert!(why.starts_with("asked to install; "), "{why}");
        assert!(!folder.join("program").exists(), "another version starts afresh");
        once(&folder, &["one==1"], writes).expect("what failed is not taken for installed");
        fs::remove_dir_all(&folder).unwrap();
    }
}
