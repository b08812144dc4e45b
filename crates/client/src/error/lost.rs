//! How a lease on a key or on a job came to be no longer its holder's.

use fencehold_core::job::{AttemptOutcome, JobRefusal};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Owner, Reason, Refusal, Token};

/// How a lease came to be no longer its holder's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostCause {
    /// Its own holder gave it back.
    Released,
    /// It was ended at the store, or reached the end that was set for it.
    #[non_exhaustive]
    Ended {
        /// How; `None` where the store no longer remembers.
        outcome: Option<LeaseOutcome>,
        /// The key's newest token, where it is known.
        current_token: Option<Token>,
        /// Who ended it by force, or had it asked to yield, if someone did and the store remembers.
        by: Option<Owner>,
        /// Why, if someone ended it by force and the store remembers.
        reason: Option<Reason>,
    },
    /// No renewal got through in time, so the holder must take it for lost.
    #[non_exhaustive]
    NotRenewed {
        /// What the last renewal came back with; `None`: this process did not run in time to send one.
        failure: Option<String>,
    },
    /// The store has forgotten this lease's token: it was rewound.
    #[non_exhaustive]
    StoreRewound {
        /// The largest token that the store knows of.
        current_token: Token,
    },
    /// The store knows this token under another hold id.
    WrongHoldId,
}

impl LostCause {
    /// The key's newest token, where it is known.
    pub fn current_token(&self) -> Option<Token> {
        match self {
            LostCause::Ended { current_token, .. } => *current_token,
            LostCause::StoreRewound { current_token } => Some(*current_token),
            LostCause::Released | LostCause::NotRenewed { .. } | LostCause::WrongHoldId => None,
        }
    }

    /// Ended in this way, where nothing is known of who did it, or why.
    pub(crate) fn ended(outcome: Option<LeaseOutcome>, current_token: Option<Token>) -> Self {
        LostCause::Ended { outcome, current_token, by: None, reason: None }
    }

    /// Why the store refuses what a holder asks under its token.
    pub(crate) fn from_refusal(refusal: &Refusal) -> Self {
        match refusal {
            // Only its own holder can have done that.
            Refusal::Lost { outcome: Some(LeaseOutcome::Released), .. }
            | Refusal::Lost { outcome: Some(LeaseOutcome::Yielded), by: None, .. } => LostCause::Released,
            Refusal::Lost { outcome, by, reason, current_token, .. } => LostCause::Ended {
                outcome: *outcome,
                current_token: Some(*current_token),
                by: by.clone(),
                reason: reason.clone(),
            },
            Refusal::HoldIdUsed { outcome, .. } => LostCause::ended(*outcome, None),
            Refusal::Held { token, .. } => LostCause::ended(None, Some(*token)),
            &Refusal::StoreRewound { current_token, .. } => LostCause::StoreRewound { current_token },
            Refusal::WrongHoldId { .. } => LostCause::WrongHoldId,
            _ => LostCause::ended(None, None),
        }
    }

    /// Why the store refuses what a worker asks under its claim.
    pub(crate) fn from_job_refusal(refusal: &JobRefusal) -> Self {
        match refusal {
            JobRefusal::Stale { outcome, current_token, .. } => {
                LostCause::ended(outcome.map(AttemptOutcome::how), Some(*current_token))
            }
            // Only its own worker can have done that.
            JobRefusal::Over { outcome, .. } if outcome.how() == LeaseOutcome::Released => {
                LostCause::Released
            }
            JobRefusal::Over { outcome, .. } => LostCause::ended(Some(outcome.how()), None),
            &JobRefusal::StoreRewound { current_token, .. } => LostCause::StoreRewound { current_token },
            JobRefusal::WrongHoldId { .. } => LostCause::WrongHoldId,
            _ => LostCause::ended(None, None),
        }
    }
}
