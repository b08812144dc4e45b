//! The watchdog: a small process that ends the command's group in time when `run` cannot.

mod deadline;
mod handle;
mod messages;
mod process;

pub(super) use handle::Watchdog;
pub(super) use messages::{Deadlines, WatchdogReport};
pub(super) use process::main;

/// The name of this part in the arguments.
pub(super) const PART: &str = "__watchdog";
