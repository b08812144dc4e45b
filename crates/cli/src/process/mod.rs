//! A command under a lease or a claim, as a tree of processes. `run` has one of them, `work` one for each job.
//!
//! ```text
//! fencehold run ──┬── watchdog     in a session of its own; ends the command's group when its time is up, or run is
//!                 │                gone
//!                 └── CMD          leader of a group of its own; until the watchdog has said that it watches, it is
//!                      └── …       the start gate, which executes nothing
//! ```
//!
//! The order makes sure that there is no moment in which `run` can be killed and CMD lives on unwatched: the watchdog
//! stands before the gate is made, knows the group before the gate opens, and a gate whose `run` is gone closes for
//! good. CMD's leader is reaped as soon as it has ended: from then on the kernel itself says whether any process is left of its
//! group, and as long as one is, the group's number is not reused and may be signalled.

mod credentials;
mod grace;
mod group;
mod inherited_descriptors;
mod lease_status;
mod signals;
mod start_gate;
mod supervise;
mod terminal;
mod watchdog;

pub(crate) use credentials::{ACCESS_TOKEN_VARIABLE, PASS_TOKEN, pass_token};
pub(crate) use grace::{grace_ms, most_grace_ms};
pub(crate) use lease_status::LeaseStatus;
pub(crate) use signals::Signals;
pub(crate) use start_gate::Streams;
pub(crate) use supervise::{CommandEnd, CommandSpec, supervise};
pub(crate) use terminal::from_the_background;

use std::ffi::OsString;
use std::process::ExitCode;

use fencehold_contract::clock::{Clock as _, SystemClock};

/// The same binary again, whatever has happened to its file since.
const OURSELVES: &str = "/proc/self/exe";

/// The parts of this binary that only `run` and `work` start. They are no verbs: help and completions do not know them.
pub(crate) fn helper_process(
    name: &std::ffi::OsStr,
    rest: impl Iterator<Item = OsString>,
) -> Option<ExitCode> {
    match name.to_str()? {
        start_gate::PART => Some(start_gate::main(rest)),
        watchdog::PART => Some(watchdog::main()),
        _ => None,
    }
}

/// The clock on which deadlines are: it counts suspended time too.
pub(crate) fn boot_ms() -> u64 {
    SystemClock.now().store_ms
}
