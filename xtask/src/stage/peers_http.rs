//! Our server beside Debian's `etcd-server`, in one run on one machine.
//!
//! Not part of `test`: figures need a quiet machine, and people to read them.

use std::process::Command;

use crate::{install, process, workspace};

pub(crate) fn run() -> Result<(), String> {
    install::ensure_program("etcd", "etcd-server")?;
    process::run(&mut process::cargo(&["build", "--release", "--bin", "fencehold"]))?;
    let fencehold = workspace::built("release")?.join("fencehold");
    process::run(Command::new(&fencehold).args(["bench", "http", "--peers"]))
}
