//! Our benchmarks beside Debian's `redis-server` and `beanstalkd`, each in one run on one machine.
//!
//! Not part of `test`: figures need a quiet machine, and people to read them.

use std::path::PathBuf;
use std::process::Command;

use crate::{install, process, workspace};

pub(crate) fn run() -> Result<(), String> {
    install::ensure(&["redis-server", "beanstalkd"])?;
    let bench = build()?;
    for what in ["lease", "job"] {
        process::run(Command::new(&bench).args([what, "--peers"]))?;
    }
    Ok(())
}

/// Builds the program of the benchmarks. Together with `fencehold`, so that the stores in it are built with the same features.
pub(super) fn build() -> Result<PathBuf, String> {
    process::run(&mut process::cargo("build --release -p fencehold-cli -p fencehold-bench"))?;
    Ok(workspace::built("release")?.join("fencehold-bench"))
}
