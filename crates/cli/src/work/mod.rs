//! `fencehold work`: jobs, each as one run of a command.
//!
//! Nouns: a *shift* is one process at work; it claims jobs, gives each to a *run* of the command under a watchdog,
//! renews all their claims in one call, and hands in what came of them in batches. A *verdict* is what a run means for
//! its job. The *voice* is a thread that writes, so that a reader who does not read stops no renewal.
//!
//! Deliberately absent: rules. What a late, stale or repeated word means is decided by the store.

mod line;
mod run;
mod running;
mod shift;
mod tries;
mod verdict;
mod voice;

use std::ffi::OsString;
use std::sync::Arc;

use fencehold_contract::job::Weighted;
use fencehold_core::Owner;

pub(crate) use shift::Shift;
pub(crate) use verdict::SNOOZE_CODE;
pub(crate) use voice::Voice;

/// What to work on, and how.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) queues: Vec<Weighted>,
    /// How many commands at once.
    pub(crate) concurrency: usize,
    pub(crate) owner: Owner,
    pub(crate) ttl_ms: u64,
    /// What a command gets between TERM and KILL.
    pub(crate) grace_ms: u64,
    /// For how long a job is put off whose command asks for that.
    pub(crate) snooze_ms: u64,
    /// How long running commands may go on after a request to stop.
    pub(crate) drain_ms: u64,
    /// Stop when no job is ready.
    pub(crate) until_empty: bool,
    /// The command and its arguments.
    pub(crate) words: Arc<[OsString]>,
}
