//! How a lease on a key or on a job came to be no longer its holder's.

use fencehold_core::job;
use fencehold_core::lease::How;
use fencehold_core::{Owner, Reason, Refusal, Token};

/// How a lease came to be no longer its holder's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// Its own holder gave it back.
    Released,
    /// It was ended at the store, or reached the end that was set for it.
    Ended {
        /// How; `None` where the store no longer remembers.
        how: Option<How>,
        /// The key's newest token, where it is known.
        current_token: Option<Token>,
        /// Who ended it by force, or had it asked to yield, where somebody did and the store remembers.
        by: Option<Owner>,
        /// Why, where somebody ended it by force and the store remembers.
        reason: Option<Reason>,
    },
    /// No renewal got through in time, so the holder must take it for lost.
    NotRenewed {
        /// What the last renewal came back with; `None`: this process did not run in time to send one.
        failure: Option<String>,
    },
    /// The store has forgotten this lease's token: it was rewound.
    StoreRewound {
        /// The largest token that the store knows of.
        current_token: Token,
    },
    /// The store knows this token under another hold id.
    WrongHold,
}

impl LostReason {
    /// The key's newest token, where it is known.
    pub fn current_token(&self) -> Option<Token> {
        match self {
            LostReason::Ended { current_token, .. } => *current_token,
            LostReason::StoreRewound { current_token } => Some(*current_token),
            LostReason::Released | LostReason::NotRenewed { .. } | LostReason::WrongHold => None,
        }
    }

    /// Ended in this way, by the holder's own reckoning.
    pub(crate) fn ended(how: How, by: Option<Owner>) -> Self {
        LostReason::Ended { how: Some(how), current_token: None, by, reason: None }
    }

    /// Why the store refuses what a holder asks under its token.
    pub(crate) fn from_refusal(refusal: &Refusal) -> Self {
        let ended = |how: &Option<How>, current_token| LostReason::Ended {
            how: *how,
            current_token,
            by: None,
            reason: None,
        };
        match refusal {
            // Only its own holder can have done that.
            Refusal::Lost { how: Some(How::Released), .. } => LostReason::Released,
            Refusal::Lost { how, by, reason, current, .. } => LostReason::Ended {
                how: *how,
                current_token: Some(*current),
                by: by.clone(),
                reason: reason.clone(),
            },
            Refusal::Ended { how, .. } => ended(how, None),
            Refusal::Held { token, .. } => ended(&None, Some(*token)),
            Refusal::StoreRewound { current, .. } => LostReason::StoreRewound { current_token: *current },
            Refusal::WrongHold { .. } => LostReason::WrongHold,
            _ => ended(&None, None),
        }
    }

    /// Why the store refuses what a worker asks under its claim.
    pub(crate) fn from_job_refusal(refusal: &job::Refusal) -> Self {
        let ended = |how: Option<job::Ended>, current_token| LostReason::Ended {
            how: how.map(job::Ended::how),
            current_token,
            by: None,
            reason: None,
        };
        match refusal {
            job::Refusal::Stale { how, current, .. } => ended(*how, Some(*current)),
            job::Refusal::Over { how, .. } => match ended(Some(*how), None) {
                // Only its own worker can have done that.
                LostReason::Ended { how: Some(How::Released), .. } => LostReason::Released,
                over => over,
            },
            job::Refusal::StoreRewound { current, .. } => {
                LostReason::StoreRewound { current_token: *current }
            }
            job::Refusal::WrongHold { .. } => LostReason::WrongHold,
            _ => ended(None, None),
        }
    }
}
