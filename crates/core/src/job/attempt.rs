//! The attempts of a job that are over, and the ways in which one can end.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::hold::HoldHash;
use crate::key::Owner;
use crate::lease::How;
use crate::time::Stamp;
use crate::token::Token;

/// The attempts of a job that ended, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Trail {
    /// At most [`TRAIL_MAX`](crate::limits::TRAIL_MAX).
    pub attempts: Vec<Attempt>,
    /// How many earlier ones had to be forgotten.
    pub forgotten: u32,
}

/// One attempt that ended.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// Its token.
    pub token: Token,
    /// Recognises its hold id.
    pub hash: HoldHash,
    /// Who made it.
    pub owner: Owner,
    /// When it began.
    pub since: Stamp,
    /// When it ended.
    pub ended: Stamp,
    /// How it ended.
    pub how: Ended,
    /// What went wrong, in the holder's words; or who ended it, and why.
    pub error: Option<Box<str>>,
}

/// The ways in which an attempt can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ended {
    /// The work was done.
    Completed,
    /// The work was done, and reported after the claim had run out but before anybody else had the job.
    CompletedLate,
    /// Its holder reported an error.
    Failed,
    /// Its holder reported an error after the claim had run out.
    FailedLate,
    /// It ran over its time limit.
    TimedOut,
    /// Its holder died, stalled, or could not reach the store.
    Crashed,
    /// Its holder put the job off.
    Snoozed,
    /// Its holder gave the job back.
    HandedBack,
    /// It was asked to yield, and its time ran out.
    Yielded,
    /// It was handed to somebody who had already gone, and was freed at once.
    Abandoned,
    /// It stopped at an effect of which nobody knows whether it happened.
    Indeterminate,
    /// Somebody ended it by force.
    Revoked,
    /// `store advance` ended every claim.
    Advanced,
}

impl Ended {
    /// Every way, in the order of their tags.
    pub const ALL: [Ended; 13] = [
        Ended::Completed,
        Ended::CompletedLate,
        Ended::Failed,
        Ended::FailedLate,
        Ended::TimedOut,
        Ended::Crashed,
        Ended::Snoozed,
        Ended::HandedBack,
        Ended::Yielded,
        Ended::Abandoned,
        Ended::Indeterminate,
        Ended::Revoked,
        Ended::Advanced,
    ];

    /// Whether the claim simply ran out, so that its holder may not know that it is over.
    pub const fn ran_out(self) -> bool {
        matches!(self, Ended::TimedOut | Ended::Crashed | Ended::Yielded)
    }

    /// How the lease on the job ended, where that is known.
    pub const fn how(self) -> How {
        match self {
            Ended::Crashed | Ended::CompletedLate | Ended::FailedLate => How::Expired,
            Ended::TimedOut => How::AgedOut,
            Ended::Yielded => How::Yielded,
            Ended::Abandoned => How::Abandoned,
            Ended::Revoked => How::Revoked,
            Ended::Advanced => How::Advanced,
            Ended::Completed | Ended::Failed | Ended::Snoozed | Ended::HandedBack | Ended::Indeterminate => {
                How::Released
            }
        }
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Ended::Completed => "completed",
            Ended::CompletedLate => "completed late",
            Ended::Failed => "failed",
            Ended::FailedLate => "failed late",
            Ended::TimedOut => "timed out",
            Ended::Crashed => "crashed",
            Ended::Snoozed => "snoozed",
            Ended::HandedBack => "handed back",
            Ended::Yielded => "yielded",
            Ended::Abandoned => "abandoned",
            Ended::Indeterminate => "indeterminate",
            Ended::Revoked => "revoked",
            Ended::Advanced => "ended by store advance",
        })
    }
}
