//! Real faults at length: 50 000 calls and 100 kills on a directory, and a failure of every write and sync of a short run.
//! `cargo xtask test` has a tenth of it.

use crate::process;

pub(crate) fn run() -> Result<(), String> {
    let words = "test -p fencehold-cli --all-features --test cli -- faults:: --nocapture --test-threads=1";
    process::run(process::cargo(words).env("FENCEHOLD_FAULTS", "long"))
}
