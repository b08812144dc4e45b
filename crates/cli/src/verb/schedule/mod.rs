//! `fencehold schedule …`: jobs that are enqueued by the clock.

mod get;
mod ls;
mod next;
mod rm;
mod set;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold schedule set nightly --cron '30 3 * * *' \\
    --time-zone Europe/Berlin --queue reports --kind build
  fencehold schedule ls
  fencehold schedule next nightly
";

group! {
    /// Enqueue jobs by the clock: cron expressions with time zones
    EXAMPLES:
    Set = set,
    Ls = ls,
    Get = get,
    Rm = rm,
    Next = next,
}
