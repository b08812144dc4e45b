//! Our benchmarks beside Debian's `redis-server` and `beanstalkd`, each in one run on one machine.
//!
//! Not part of `test`: figures need a quiet machine, and people to read them.

use std::process::Command;

use crate::{install, process, workspace};

pub(crate) fn run() -> Result<(), String> {
    install::ensure(&["redis-server", "beanstalkd"])?;
    process::run(&mut process::cargo(&["build", "--release", "--bin", "fencehold"]))?;
    let fencehold = workspace::built("release")?.join("fencehold");
    for what in ["lease", "job"] {
        process::run(Command::new(&fencehold).args(["bench", what, "--peers"]))?;
    }
    Ok(())
}
