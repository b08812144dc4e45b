//! The exhaustive models and the simulation, in a build of their own: optimised, and with every invariant still checked.

use std::process::Command;

use crate::{process, workspace};

/// How many histories every change must stand.
const SEEDS: &str = "20000";
/// How many now and then.
const SEEDS_LARGE: &str = "200000";

/// What CI runs: a million states, twenty thousand histories.
pub(crate) fn run() -> Result<(), String> {
    build("")?;
    makes_no_mistakes()?;
    proof(&["model"])?;
    proof(&["sim", "run", "--seeds", SEEDS])
}

/// Every state within wider bounds, and ten times the histories.
pub(crate) fn run_large() -> Result<(), String> {
    build("")?;
    makes_no_mistakes()?;
    proof(&["model", "--large"])?;
    proof(&["sim", "run", "--seeds", SEEDS_LARGE])
}

/// Turns every seeded mistake on in turn, and shows what notices it.
pub(crate) fn run_bugs() -> Result<(), String> {
    build("bugs")?;
    proof(&["bugs"])
}

/// A build that does not have the mistake says so, and does not say that all is well.
fn makes_no_mistakes() -> Result<(), String> {
    let mut asked = Command::new(workspace::built("proof")?.join("proof"));
    asked
        .args(["sim", "run", "--seeds", "1"])
        .env("FENCEHOLD_SEEDED_BUG", "TwoHolders");
    let answer = asked.output().map_err(|error| format!("proof cannot be started: {error}"))?;
    let said = String::from_utf8_lossy(&answer.stderr);
    if answer.status.code() == Some(2) && said.contains("--features bugs") {
        return Ok(());
    }
    Err(format!("asked for a seeded bug that it does not have, proof ended with {}: {said}", answer.status))
}

fn build(features: &str) -> Result<(), String> {
    let args =
        ["build", "--profile", "proof", "-p", "fencehold-proof", "--features", features, "--bin", "proof"];
    process::run(&mut process::cargo(&args))
}

fn proof(args: &[&str]) -> Result<(), String> {
    process::run(Command::new(workspace::built("proof")?.join("proof")).args(args))
}
