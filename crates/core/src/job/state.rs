//! How a job stands, and what it waits for.

use serde::{Deserialize, Serialize};

use crate::error::BadInput;
use crate::time::Timestamp;

worded! {
    /// How a job stands.
    #[derive(PartialOrd, Ord)]
    pub enum JobState {
        /// Ready to be claimed.
        Queued = "queued",
        /// Waiting for its time, or for its retry.
        Scheduled = "scheduled",
        /// Claimed: a worker has it.
        Running = "running",
        /// Done.
        Completed = "completed",
        /// Failed for good; kept for people.
        Failed = "failed",
        /// Called off.
        Cancelled = "cancelled",
        /// It was the end of too many holders; kept for people.
        Quarantined = "quarantined",
        /// An effect was begun and may or may not have happened: a person must look.
        InDoubt = "in_doubt",
    }
}

impl JobState {
    /// Whether the job has come to its end. It is then kept for a set time, and pruned.
    pub const fn is_final(self) -> bool {
        matches!(self, JobState::Completed | JobState::Failed | JobState::Cancelled)
    }

    /// Whether nothing more becomes of the job unless a person acts: it has come to its end, or waits for one.
    pub const fn is_settled(self) -> bool {
        self.is_final() || matches!(self, JobState::Quarantined | JobState::InDoubt)
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        self.word()
    }
}

impl std::str::FromStr for JobState {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        JobState::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            let names = JobState::ALL.map(JobState::name).join(", ");
            BadInput::new("state", format!("{text:?} is not one of {names}"))
        })
    }
}

/// What a scheduled job waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Due {
    /// Nothing.
    #[default]
    Now,
    /// A moment in store time: a retry, a snooze, the delay of its enqueuer.
    Store(u64),
    /// A moment in wall time: the `run_at` of its enqueuer.
    Wall(u64),
}

impl Due {
    /// In how many milliseconds it is due.
    pub const fn in_ms(self, now: Timestamp) -> u64 {
        match self {
            Due::Now => 0,
            Due::Store(at_ms) => at_ms.saturating_sub(now.store_ms),
            Due::Wall(at_ms) => at_ms.saturating_sub(now.wall_ms),
        }
    }
}
