//! A command under a lease or a claim, as a tree of processes. `run` has one of them, `work` one for each job.
//!
//! ```text
//! fencehold work ──┬── watchdog     in a session of its own; ends a command's group when its time is up, or work is
//!                  │                gone; one for all commands
//!                  ├── CMD          leader of a group of its own, which the watchdog has the order to watch before CMD
//!                  │    └── …       is executed
//!                  └── CMD …
//! ```
//!
//! There is no moment in which `run` or `work` can be killed and CMD lives on unwatched: the new process itself writes the
//! order into the watchdog's socket, and becomes CMD only if that was taken. CMD's leader is reaped as soon as it has ended:
//! from then on the kernel itself says whether any process is left of its group, and as long as one is, the group's number is
//! not reused and may be signalled.

mod credentials;
#[cfg(all(feature = "file", feature = "server"))]
mod descendants;
mod grace;
mod group;
mod inherited_descriptors;
mod lease_status;
mod process_exit;
mod signals;
mod start;
mod supervise;
mod terminal;
mod watchdog;

pub(crate) use credentials::{ACCESS_TOKEN_VARIABLE, PASS_TOKEN, pass_token};
#[cfg(all(feature = "file", feature = "server"))]
pub(crate) use descendants::{adopt_orphans, end_descendants, ended_child};
pub(crate) use grace::{grace_ms, most_grace_ms};
pub(crate) use lease_status::LeaseStatus;
pub(crate) use signals::Signals;
pub(crate) use start::Streams;
pub(crate) use supervise::{CommandEnd, CommandSpec, supervise};
pub(crate) use terminal::from_the_background;
pub(crate) use watchdog::Watchdog;

use std::ffi::OsStr;
use std::process::ExitCode;

use fencehold_contract::clock::{Clock as _, SystemClock};

/// The same binary again, whatever has happened to its file since.
pub(crate) const OURSELVES: &str = "/proc/self/exe";

/// The part of this binary that only `run` and `work` start. It is no verb: help and completions do not know it.
pub(crate) fn helper_process(name: &OsStr) -> Option<ExitCode> {
    (name == watchdog::PART).then(watchdog::main)
}

/// The clock on which deadlines are: it counts suspended time too.
pub(crate) fn boot_ms() -> u64 {
    SystemClock.now().store_ms
}
