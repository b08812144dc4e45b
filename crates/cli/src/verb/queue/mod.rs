//! `fencehold queue …`: looking at queues, and telling them what to do.

mod drain;
mod ls;
mod order;
mod pause;
mod resume;
mod rm;

use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold queue ls
  fencehold queue pause emails
  fencehold queue resume emails
";

group! {
    /// Look at queues; pause, resume, drain or remove them
    EXAMPLES:
    Ls = ls,
    Pause = pause,
    Resume = resume,
    Drain = drain,
    Rm = rm,
}
