//! `fencehold quota …`: what a namespace may have, and has.

mod get;
mod set;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold quota get
  fencehold --namespace team-a quota set --max-keys 1000 --max-ttl 10m
";

group! {
    /// Show and set how much a namespace may have
    EXAMPLES:
    Get = get,
    Set = set,
}
