//! `fencehold event …`: what happened to leases and jobs.

mod ls;
mod watch;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold event ls --prefix reports/
  fencehold event watch
";

group! {
    /// List and watch what happens to leases and jobs
    EXAMPLES:
    Ls = ls,
    Watch = watch,
}
