//! `fencehold effect …`: side effects of jobs that a person should know of.

mod ls;
mod resolve;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  # What is in doubt, compensated, or of a superseded token
  fencehold effect ls
  # A person has looked: the card was not charged
  fencehold effect resolve 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 charge \\
    --did-not-happen
";

group! {
    /// List effects of jobs that need attention, and resolve them
    EXAMPLES:
    Ls = ls,
    Resolve = resolve,
}
