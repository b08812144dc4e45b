//! Random commands on PostgreSQL and on `memory:`, which must answer alike: many more sequences than `cargo xtask test` has.

use crate::process;

const SEQUENCES: &str = "20000";

pub(crate) fn run() -> Result<(), String> {
    let words = "test -p fencehold-store-postgres --all-features --test postgres alike::";
    process::run(process::cargo(words).env("FENCEHOLD_ALIKE_SEQUENCES", SEQUENCES))
}
