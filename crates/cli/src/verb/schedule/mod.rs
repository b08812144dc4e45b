//! `fencehold schedule …`: jobs that are enqueued by the clock.

mod add;
mod ls;
mod next;
mod rm;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold schedule add nightly --cron '30 3 * * *' --zone Europe/Berlin --queue reports --kind build
  fencehold schedule ls
  fencehold schedule next nightly
";

group! {
    /// Enqueue jobs by the clock: cron lines with time zones
    EXAMPLES:
    Add = add,
    Ls = ls,
    Rm = rm,
    Next = next,
}
