//! Tries what was packed on a Debian of its own, without Rust and without a network; and the image in its own root.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::{copy, make_dir};
use crate::stage::servers;
use crate::{install, process, workspace};

/// What the Debian has besides its base: Python and Node for their packages, systemd to run the unit.
const PACKAGES: &[&str] = &["python3-venv", "npm", "adduser", "systemd", "systemd-sysv", "dbus"];

/// Where the trial takes place.
pub(super) fn folder() -> Result<PathBuf, String> {
    Ok(workspace::target()?.join("dist-trial"))
}

pub(super) fn run(out: &Path) -> Result<(), String> {
    if !install::is_root() {
        println!("packages are tried as root only: they were made and not tried");
        return Ok(());
    }
    let root = folder()?.join("root");
    let archive = servers::debian_root(PACKAGES)?;
    let _ = fs::remove_dir_all(&root);
    make_dir(&root)?;
    process::run(Command::new("tar").arg("-C").arg(&root).arg("-xf").arg(archive))?;
    let trial = root.join("trial");
    for (folder, from) in [("dist", out.to_owned()), ("earlier", self::folder()?)] {
        make_dir(&trial.join(folder))?;
        for file in fs::read_dir(from)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|file| file.path().is_file())
        {
            copy(&file.path(), &trial.join(folder).join(file.file_name()))?;
        }
    }
    let packages = workspace::root().join("deploy/packages");
    copy(&packages.join("trial.sh"), &trial.join("trial.sh"))?;
    copy(&packages.join("trial.service"), &root.join("etc/systemd/system/trial.service"))?;
    boot(&root)?;
    println!("{}", fs::read_to_string(trial.join("log")).unwrap_or_default());
    if !trial.join("passed").exists() {
        return Err("a package does not work; the last lines above say which".to_owned());
    }
    try_image(out)?;
    fs::remove_dir_all(folder()?).map_err(|error| error.to_string())
}

/// Boots the Debian in `root` with no network but its own loopback; it runs the trial and turns itself off.
fn boot(root: &Path) -> Result<(), String> {
    install::ensure_program("systemd-nspawn", "systemd-container")?;
    let mut nspawn = Command::new("systemd-nspawn");
    nspawn
        .args(["--quiet", "--boot", "--private-network", "--register=no", "--keep-unit", "--console=pipe"])
        .arg("--directory")
        .arg(root)
        .arg("systemd.unit=trial.service");
    process::run(nspawn.stdin(Stdio::null()).stdout(Stdio::null()))
}

/// The image's root, read-only but for its volume, as its own user.
fn try_image(out: &Path) -> Result<(), String> {
    let place = folder()?.join("image");
    make_dir(&place.join("layout"))?;
    let find = |file: &PathBuf| file.to_string_lossy().contains("-image-");
    let files = fs::read_dir(out).into_iter().flatten().flatten().map(|entry| entry.path());
    let archive = files.into_iter().find(find).ok_or("there is no image")?;
    process::run(Command::new("tar").arg("-C").arg(place.join("layout")).arg("-xzf").arg(archive))?;
    let image = format!("{}:{}", place.join("layout").display(), super::version());
    process::run(
        Command::new("umoci")
            .args(["unpack", "--image", &image])
            .arg(place.join("bundle")),
    )?;
    let root = place.join("bundle/rootfs");
    let mut unshare = Command::new("unshare");
    unshare
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "sh", "-euc"])
        .arg(
            "ip link set lo up; mount --bind \"$0\" \"$0\"; mount -t proc proc \"$0/proc\"; \
             mount -t tmpfs -o uid=65532,gid=65532,mode=0700 none \"$0/var/lib/fencehold\"; \
             mount -o remount,ro,bind \"$0\"; \
             export FENCEHOLD_STORE='file:/var/lib/fencehold?create=true'; fencehold=\"chroot --userspec=65532:65532 $0 /usr/bin/fencehold\"; \
             $fencehold serve --listen 127.0.0.1:7117 & \
             $fencehold --store http://127.0.0.1:7117 --timeout 20s lease acquire image-trial --owner trial",
        )
        .arg(root);
    process::run(&mut unshare)
}
