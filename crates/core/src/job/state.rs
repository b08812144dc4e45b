//! How a job stands, and what it waits for.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::error::BadInput;
use crate::time::Stamp;

/// How a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    /// Ready to be claimed.
    Queued,
    /// Waiting for its time, or for its retry.
    Scheduled,
    /// Claimed: somebody works on it.
    Running,
    /// Done.
    Completed,
    /// Failed for good; kept for people.
    Failed,
    /// Called off.
    Cancelled,
    /// It was the end of too many holders; kept for people.
    Quarantined,
    /// An effect was begun and nobody knows whether it happened: a person must look.
    Indeterminate,
}

impl State {
    /// Every state, in the order of their tags.
    pub const ALL: [State; 8] = [
        State::Queued,
        State::Scheduled,
        State::Running,
        State::Completed,
        State::Failed,
        State::Cancelled,
        State::Quarantined,
        State::Indeterminate,
    ];

    /// Whether the job has come to its end. It is then kept for a set time, and pruned.
    pub const fn is_final(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::Cancelled)
    }

    /// Whether nothing more becomes of the job unless a person acts: it has come to its end, or waits for one.
    pub const fn is_settled(self) -> bool {
        self.is_final() || matches!(self, State::Quarantined | State::Indeterminate)
    }

    /// The word for it.
    pub const fn name(self) -> &'static str {
        match self {
            State::Queued => "queued",
            State::Scheduled => "scheduled",
            State::Running => "running",
            State::Completed => "completed",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Quarantined => "quarantined",
            State::Indeterminate => "indeterminate",
        }
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl std::str::FromStr for State {
    type Err = BadInput;

    fn from_str(text: &str) -> Result<Self, BadInput> {
        State::ALL.into_iter().find(|state| state.name() == text).ok_or_else(|| {
            let names = State::ALL.map(State::name).join(", ");
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
    pub const fn in_ms(self, now: Stamp) -> u64 {
        match self {
            Due::Now => 0,
            Due::Store(at_ms) => at_ms.saturating_sub(now.store_ms),
            Due::Wall(at_ms) => at_ms.saturating_sub(now.wall_ms),
        }
    }
}
