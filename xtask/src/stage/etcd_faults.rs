//! Two hundred leaders of an etcd cluster killed and two hundred members stopped, under contending holders. `cargo xtask
//! test` has five of each. Prints how long it took until a free key could be had again: median and most.

use crate::process;

const ROUNDS: &str = "200";

pub(crate) fn run() -> Result<(), String> {
    let words = "test --package fencehold-store-etcd --all-features --test etcd faults::";
    process::run(process::cargo(words).env("FENCEHOLD_ETCD_ROUNDS", ROUNDS))
}
