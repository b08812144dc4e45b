//! Our jobs beside other queues on PostgreSQL: one private server, with its commits synced, and one run.
//!
//! The peers are a workspace of their own (`bench/peers`), built into a folder of their own: nothing of theirs is ours.

use std::process::Command;

use super::peers::build;
use crate::private_postgres::PrivatePostgres;
use crate::{process, workspace};

/// The rest is as it comes: these are named because they are the point.
const DURABLE: [&str; 2] = ["fsync=on", "synchronous_commit=on"];

pub(crate) fn run() -> Result<(), String> {
    let bench = build()?;
    let peers = workspace::target()?.join("peers");
    let mut command = process::cargo("build --release --manifest-path bench/peers/Cargo.toml --target-dir");
    process::run(command.arg(&peers))?;

    let server = PrivatePostgres::start(&DURABLE)?;
    let database = server.url();
    let store = format!("{database}?max_connections=64&completed_jobs=drop&sslmode=disable");
    let mut command = Command::new(bench);
    command
        .args(["postgres", "--store", &store, "--peers"])
        .arg(peers.join("release/peers"))
        .env("DATABASE_URL", &database);
    process::run(&mut command)
}
