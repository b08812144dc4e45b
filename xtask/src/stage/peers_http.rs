//! Our server beside Debian's `etcd-server`, in one run on one machine.
//!
//! Not part of `test`: figures need a quiet machine, and people to read them.

use std::process::Command;

use super::peers::build;
use crate::{install, process};

pub(crate) fn run() -> Result<(), String> {
    install::ensure_program("etcd", "etcd-server")?;
    process::run(Command::new(build()?).args(["http", "--peers", "--time", "4s"]))
}
