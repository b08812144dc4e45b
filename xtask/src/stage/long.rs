//! Every test, over and over: a test that fails one time in twenty is a bug in the product or in the test.

use crate::process;

/// How often everything is run.
const ROUNDS: usize = 20;

pub(crate) fn run() -> Result<(), String> {
    for round in 1..=ROUNDS {
        println!("round {round} of {ROUNDS}");
        process::run(&mut process::cargo("test --workspace --all-features --tests --no-fail-fast"))?;
    }
    Ok(())
}
