//! The watchdog: a small process that ends the command's group in time when `run` cannot.

mod handle;
mod patience;
mod process;
mod words;

pub(super) use handle::Watchdog;
pub(super) use process::main;
pub(super) use words::{Moments, Report};

/// The name of this part in the arguments.
pub(super) const PART: &str = "__watchdog";
