//! What a lease or a claim means for the command under it.

use fencehold::{LeaseOutcome, LeaseSnapshot, LeaseState, LostCause};

/// How the lease stands, as far as the command is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseStatus {
    /// The command must be gone by then (boot-time clock), unless there is better news.
    Until { kill_at_ms: u64 },
    /// The lease has run out.
    RanOut,
    /// The lease was taken away before its time.
    Taken,
    /// The command is not wanted any more: it gets its grace, but is gone by then.
    Unwanted { kill_at_ms: u64 },
}

impl LeaseStatus {
    pub(crate) fn of(lease: &LeaseSnapshot) -> Self {
        match (lease.state, &lease.lost) {
            (LeaseState::Lost, Some(why)) if ran_out(why) => LeaseStatus::RanOut,
            (LeaseState::Lost, _) => LeaseStatus::Taken,
            _ => LeaseStatus::Until { kill_at_ms: lease.lost_at_ms },
        }
    }
}

/// Whether a lease ended at its time, so that the command had its warning.
fn ran_out(why: &LostCause) -> bool {
    match why {
        LostCause::NotRenewed { .. } => true,
        LostCause::Ended { outcome: how, .. } => {
            matches!(how, Some(LeaseOutcome::Expired | LeaseOutcome::AgedOut | LeaseOutcome::Yielded))
        }
        _ => false,
    }
}
