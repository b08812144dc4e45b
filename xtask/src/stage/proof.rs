//! The exhaustive models and the simulation, in a build of their own: optimised, and with every invariant still checked.

use std::process::Command;

use crate::{process, workspace};

/// How many histories every change must stand.
const SEEDS: &str = "20000";
/// How many now and then.
const SEEDS_LARGE: &str = "200000";

/// What CI runs: a million states, twenty thousand histories.
pub(crate) fn run() -> Result<(), String> {
    build()?;
    proof(&["model"])?;
    proof(&["sim", "run", "--seeds", SEEDS])
}

/// Every state within wider bounds, and ten times the histories.
pub(crate) fn run_large() -> Result<(), String> {
    build()?;
    proof(&["model", "--large"])?;
    proof(&["sim", "run", "--seeds", SEEDS_LARGE])
}

fn build() -> Result<(), String> {
    process::run(&mut process::cargo("build --profile proof -p fencehold-proof --bin proof"))
}

fn proof(args: &[&str]) -> Result<(), String> {
    process::run(Command::new(workspace::built("proof")?.join("proof")).args(args))
}
