//! Every race a thousand times: one that is lost one time in a thousand is lost.

use crate::process;

const REPEATS: &str = "1000";

pub(crate) fn run() -> Result<(), String> {
    let args = ["run", "--release", "-p", "fencehold-cli", "--", "race", "all", "--repeat", REPEATS];
    process::run(&mut process::cargo(&args))
}
