//! The attempts of a job that are over, and the ways in which one can end.

use serde::{Deserialize, Serialize};

use crate::hold::HoldHash;
use crate::key::Owner;
use crate::lease::LeaseOutcome;
use crate::time::Timestamp;
use crate::token::Token;

/// The attempts of a job that ended, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AttemptHistory {
    /// At most [`TRAIL_MAX`](crate::limits::TRAIL_MAX).
    pub attempts: Vec<PastAttempt>,
    /// How many earlier ones had to be forgotten.
    pub forgotten: u32,
}

/// One attempt that ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PastAttempt {
    /// Its token.
    pub token: Token,
    /// Recognises its hold id.
    pub hash: HoldHash,
    /// Who made it.
    pub owner: Owner,
    /// When it began.
    pub since: Timestamp,
    /// When it ended.
    pub ended: Timestamp,
    /// How it ended.
    pub outcome: AttemptOutcome,
    /// What went wrong, in the holder's words; or who ended it, and why.
    pub error: Option<Box<str>>,
}

worded! {
    /// The ways in which an attempt can end.
    pub enum AttemptOutcome {
        /// The work was done.
        Completed = "completed",
        /// The work was done, and reported after the claim had run out but before anybody else had the job.
        CompletedLate = "completed late",
        /// Its holder reported an error.
        Failed = "failed",
        /// Its holder reported an error after the claim had run out.
        FailedLate = "failed late",
        /// It ran over its time limit.
        TimedOut = "timed out",
        /// Its holder died, stalled, or could not reach the store.
        Crashed = "crashed",
        /// Its holder put the job off.
        Snoozed = "snoozed",
        /// Its holder gave the job back.
        Released = "released",
        /// It was asked to yield, and its time ran out.
        Yielded = "yielded",
        /// It was handed to a caller that had already gone, and was freed at once.
        Abandoned = "abandoned",
        /// It stopped at an effect in doubt.
        InDoubt = "in doubt",
        /// It was ended by force.
        Revoked = "revoked",
        /// `store advance` ended every claim.
        Advanced = "ended by store advance",
    }
}

impl AttemptOutcome {
    /// Whether the claim simply ran out, so that its holder may not know that it is over.
    pub const fn ran_out(self) -> bool {
        matches!(self, AttemptOutcome::TimedOut | AttemptOutcome::Crashed | AttemptOutcome::Yielded)
    }

    /// How the lease on the job ended, where that is known.
    pub const fn how(self) -> LeaseOutcome {
        match self {
            AttemptOutcome::Crashed | AttemptOutcome::CompletedLate | AttemptOutcome::FailedLate => {
                LeaseOutcome::Expired
            }
            AttemptOutcome::TimedOut => LeaseOutcome::AgedOut,
            AttemptOutcome::Yielded => LeaseOutcome::Yielded,
            AttemptOutcome::Abandoned => LeaseOutcome::Abandoned,
            AttemptOutcome::Revoked => LeaseOutcome::Revoked,
            AttemptOutcome::Advanced => LeaseOutcome::Advanced,
            AttemptOutcome::Completed
            | AttemptOutcome::Failed
            | AttemptOutcome::Snoozed
            | AttemptOutcome::Released
            | AttemptOutcome::InDoubt => LeaseOutcome::Released,
        }
    }
}
