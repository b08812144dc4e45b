//! `fencehold audit …`: what was done by force, and who did it.

mod ls;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold audit ls --since 24h
";

group! {
    /// Show what was done by force through a server
    EXAMPLES:
    Ls = ls,
}
