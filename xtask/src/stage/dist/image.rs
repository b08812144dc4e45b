//! The container image, as an archive that `docker load` and `podman load` take: Debian's libc and certificates, and the binary.
//! Nothing is pulled and no daemon is needed; `deploy/packages/image/Dockerfile` makes the like from source.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::{Build, archive, copy, make_dir, write};
use crate::{install, process};

/// The libraries that the binary loads, with its loader.
const LIBRARIES: [&str; 6] =
    ["libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1", "libresolv.so.2"];
/// As in the Dockerfile.
const USER: &str = "65532";

pub(super) fn archive(build: &Build) -> Result<(), String> {
    if build.platform.debian != Some("amd64") {
        return Ok(());
    }
    install::ensure(&["umoci"])?;
    let root = build.files.join("image/root");
    lay_out(build, &root)?;
    let layout = build.files.join("image/layout");
    let image = format!("{}:{}", layout.display(), build.version);
    umoci(&["init", "--layout", &layout.display().to_string()])?;
    umoci(&["new", "--image", &image])?;
    umoci(&["insert", "--image", &image, &root.display().to_string(), "/"])?;
    umoci(&[
        "config",
        "--image",
        &image,
        &format!("--config.user={USER}:{USER}"),
        "--config.entrypoint=/usr/bin/fencehold",
        "--config.cmd=serve",
        "--config.cmd=--listen",
        "--config.cmd=0.0.0.0:7117",
        "--config.env=FENCEHOLD_STORE=file:/var/lib/fencehold?create=true",
        "--config.env=PATH=/usr/bin",
        "--config.volume=/var/lib/fencehold",
        "--config.exposedports=7117/tcp",
        "--config.label=org.opencontainers.image.source=https://github.com/fencehold/fencehold",
        "--config.label=org.opencontainers.image.licenses=Apache-2.0",
    ])?;
    let name = format!("fencehold-{}-image-amd64.tar.gz", build.version);
    archive::pack(&layout, ".", &build.out.join(name))
}

fn umoci(args: &[&str]) -> Result<(), String> {
    process::run(Command::new("umoci").args(args))
}

fn lay_out(build: &Build, root: &Path) -> Result<(), String> {
    let packages = build.files.join("image/debian");
    make_dir(&packages)?;
    install::download(&packages, &["libc6", "libgcc-s1", "ca-certificates"])?;
    for package in fs::read_dir(&packages).into_iter().flatten().flatten() {
        process::run(
            Command::new("dpkg")
                .arg("-x")
                .arg(package.path())
                .arg(packages.join("unpacked")),
        )?;
    }
    let unpacked = packages.join("unpacked");
    // The last ones are for what the runtime mounts: it cannot make them where the root is read-only.
    let libraries = "usr/lib/x86_64-linux-gnu";
    for folder in
        ["etc/ssl/certs", "lib64", "usr/bin", libraries, "var/lib/fencehold", "tmp", "dev", "proc", "sys"]
    {
        make_dir(&root.join(folder))?;
    }
    for library in LIBRARIES {
        copy_library(&unpacked, root, library)?;
    }
    copy_library(&unpacked, root, "libgcc_s.so.1")?;
    copy(
        &unpacked.join("lib/x86_64-linux-gnu/ld-linux-x86-64.so.2"),
        &root.join("lib64/ld-linux-x86-64.so.2"),
    )?;
    std::os::unix::fs::symlink("usr/lib", root.join("lib")).map_err(|error| format!("lib: {error}"))?;
    write(&root.join("etc/ssl/certs/ca-certificates.crt"), certificates(&unpacked)?)?;
    write(&root.join("etc/passwd"), format!("fencehold:x:{USER}:{USER}::/var/lib/fencehold:/\n"))?;
    write(&root.join("etc/group"), format!("fencehold:x:{USER}:\n"))?;
    write(&root.join("etc/nsswitch.conf"), "hosts: files dns\n")?;
    copy(&build.binary(), &root.join("usr/bin/fencehold"))?;
    copy(&build.files.join("THIRD_PARTY.md"), &root.join("THIRD_PARTY.md"))?;
    process::run(Command::new("chmod").arg("1777").arg(root.join("tmp")))?;
    process::run(Command::new("chmod").arg("0700").arg(root.join("var/lib/fencehold")))?;
    process::run(
        Command::new("chown")
            .arg(format!("{USER}:{USER}"))
            .arg(root.join("var/lib/fencehold")),
    )
}

/// Debian's packages have it in `/lib` or `/usr/lib`, by version.
fn copy_library(unpacked: &Path, root: &Path, name: &str) -> Result<(), String> {
    let places = ["lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu"];
    let found = places
        .iter()
        .map(|place| unpacked.join(place).join(name))
        .find(|file| file.exists());
    let found = found.ok_or_else(|| format!("Debian's packages have no {name}"))?;
    copy(&found, &root.join("usr/lib/x86_64-linux-gnu").join(name))
}

/// All of Mozilla's, in one file, as `update-ca-certificates` would write it.
fn certificates(unpacked: &Path) -> Result<String, String> {
    let folder = unpacked.join("usr/share/ca-certificates/mozilla");
    let found = fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut files: Vec<_> = found.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let texts = files.iter().map(fs::read_to_string).collect::<Result<Vec<_>, _>>();
    texts
        .map(|texts| texts.concat())
        .map_err(|error| format!("{}: {error}", folder.display()))
}
