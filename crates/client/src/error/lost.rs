//! How a lease on a key or on a job came to be no longer its holder's.

use fencehold_core::job;
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Owner, Reason, Refusal, Token};

/// How a lease came to be no longer its holder's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostCause {
    /// Its own holder gave it back.
    Released,
    /// It was ended at the store, or reached the end that was set for it.
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

    /// Ended in this way, by the holder's own reckoning.
    pub(crate) fn ended(outcome: LeaseOutcome, by: Option<Owner>) -> Self {
        LostCause::Ended { outcome: Some(outcome), current_token: None, by, reason: None }
    }

    /// Why the store refuses what a holder asks under its token.
    pub(crate) fn from_refusal(refusal: &Refusal) -> Self {
        let ended = |outcome: &Option<LeaseOutcome>, current_token| LostCause::Ended {
            outcome: *outcome,
            current_token,
            by: None,
            reason: None,
        };
        match refusal {
            // Only its own holder can have done that.
            Refusal::Lost { outcome: Some(LeaseOutcome::Released), .. } => LostCause::Released,
            Refusal::Lost { outcome, by, reason, current_token, .. } => LostCause::Ended {
                outcome: *outcome,
                current_token: Some(*current_token),
                by: by.clone(),
                reason: reason.clone(),
            },
            Refusal::HoldIdUsed { outcome, .. } => ended(outcome, None),
            Refusal::Held { token, .. } => ended(&None, Some(*token)),
            Refusal::StoreRewound { current_token, .. } => {
                LostCause::StoreRewound { current_token: *current_token }
            }
            Refusal::WrongHoldId { .. } => LostCause::WrongHoldId,
            _ => ended(&None, None),
        }
    }

    /// Why the store refuses what a worker asks under its claim.
    pub(crate) fn from_job_refusal(refusal: &job::JobRefusal) -> Self {
        let ended = |outcome: Option<job::AttemptOutcome>, current_token| LostCause::Ended {
            outcome: outcome.map(job::AttemptOutcome::how),
            current_token,
            by: None,
            reason: None,
        };
        match refusal {
            job::JobRefusal::Stale { outcome, current_token, .. } => ended(*outcome, Some(*current_token)),
            job::JobRefusal::Over { outcome, .. } => match ended(Some(*outcome), None) {
                // Only its own worker can have done that.
                LostCause::Ended { outcome: Some(LeaseOutcome::Released), .. } => LostCause::Released,
                over => over,
            },
            job::JobRefusal::StoreRewound { current_token, .. } => {
                LostCause::StoreRewound { current_token: *current_token }
            }
            job::JobRefusal::WrongHoldId { .. } => LostCause::WrongHoldId,
            _ => ended(None, None),
        }
    }
}
