//! `fencehold queue …`.

mod drain;
mod get;
mod ls;
mod mode;
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
    /// List, pause, resume, drain and delete queues
    EXAMPLES:
    Ls = ls,
    Get = get,
    Pause = pause,
    Resume = resume,
    Drain = drain,
    Rm = rm,
}
