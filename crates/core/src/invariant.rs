//! What must be true of every decision, by name. Checked in debug builds and tests wherever a decision is made,
//! and again by simulations and models of the rules.

use std::fmt;

use crate::error::Refusal;
use crate::lease::{
    DeadlineChange, HoldState, LeaseCommand, LeaseCommandResult, LeaseDecision, LeaseRecord, LeaseStanding,
};
use crate::limits::{HISTORY_MAX, TOKEN_MAX};

/// A rule that a decision broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseViolation {
    /// P1: a key was granted although another lease is live.
    TwoHolders,
    /// P2: a counter went down, or a grant's token is not larger than every token before.
    TokenDidNotGrow,
    /// P2: a token passed the cap.
    TokenOverCap,
    /// P3: a renewal changed the record of a live lease.
    RenewalChangedTheRecord,
    /// P3: a renewal was answered although the lease is not live.
    RenewalRevived,
    /// P4: a lease's deadline moved earlier without its holder's or an operator's doing.
    DeadlineMovedEarlier,
    /// P4: a live lease was expired.
    LiveLeaseExpired,
    /// P7: a hold id that had ended is held again.
    EndedHoldRevived,
    /// P4: the holder was given another deadline than the one that was set.
    ToldAnotherDeadline,
    /// P5: a hold was released without its hold id.
    ReleasedByAStranger,
    /// P9: force did not consume a token.
    ForceWithoutToken,
    /// P10: a hold vanished without an ending on record.
    EndingNotRecorded,
    /// The record's history is too long or out of order.
    HistoryMalformed,
    /// A deadline was kept without a hold, or a hold without a deadline.
    DeadlineWithoutHold,
}

impl fmt::Display for LeaseViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant broken: {self:?}")
    }
}

/// States what must hold.
pub(crate) fn must<V>(holds: bool, violation: V) -> Result<(), V> {
    if holds { Ok(()) } else { Err(violation) }
}

/// Checks one decision against all invariants.
pub fn check(
    standing: &LeaseStanding,
    before: &LeaseRecord,
    command: &LeaseCommand,
    decision: &LeaseDecision,
) -> Result<(), LeaseViolation> {
    let after = decision.record.as_ref().unwrap_or(before);
    let live_ms = match standing.term {
        HoldState::Live { remaining_ms } => Some(remaining_ms),
        HoldState::Free | HoldState::Over { .. } => None,
    };

    must(after.counter >= before.counter, LeaseViolation::TokenDidNotGrow)?;
    must(after.counter.get() <= TOKEN_MAX, LeaseViolation::TokenOverCap)?;
    must(well_formed(after), LeaseViolation::HistoryMalformed)?;

    let same_hold = match (&before.hold, &after.hold) {
        (Some(before), Some(after)) => before.hash == after.hash,
        (None, None) => true,
        _ => false,
    };
    if !same_hold {
        must(live_ms.is_none() || after.hold.is_none(), LeaseViolation::TwoHolders)?;
        if let Some(ended) = &before.hold {
            let noted = after
                .endings()
                .iter()
                .any(|e| e.hash == ended.hash && e.token == before.counter);
            must(noted, LeaseViolation::EndingNotRecorded)?;
        }
    }
    if let Some(hold) = &after.hold {
        let ended = after.endings().iter().any(|ending| ending.hash == hold.hash);
        must(!ended, LeaseViolation::EndedHoldRevived)?;
    }
    match decision.deadline {
        DeadlineChange::LastsMs(lasts_ms) => {
            must(after.hold.is_some(), LeaseViolation::DeadlineWithoutHold)?;
            let shortened = same_hold && live_ms.is_some_and(|live_ms| lasts_ms < live_ms);
            must(!shortened, LeaseViolation::DeadlineMovedEarlier)?;
        }
        DeadlineChange::Clear => must(after.hold.is_none(), LeaseViolation::DeadlineWithoutHold)?,
        DeadlineChange::Keep => must(same_hold, LeaseViolation::DeadlineWithoutHold)?,
    }
    let holder = before.hold.as_ref().map(|hold| hold.hash);
    let asker = match command {
        LeaseCommand::Acquire(ask) => Some(ask.hash),
        LeaseCommand::Renew { hash, .. } | LeaseCommand::Release { hash, .. } => Some(*hash),
        _ => None,
    };
    match &decision.reply {
        Ok(LeaseCommandResult::Released { .. }) => {
            let own = decision.record.is_none() || asker == holder;
            must(own, LeaseViolation::ReleasedByAStranger)?;
        }
        Ok(LeaseCommandResult::Granted(grant)) => {
            must(grant.token == after.counter, LeaseViolation::TokenDidNotGrow)?;
            if grant.resumed {
                must(asker == holder, LeaseViolation::TwoHolders)?;
                must(live_ms.is_some() && decision.record.is_none(), LeaseViolation::EndedHoldRevived)?;
            } else {
                must(live_ms.is_none(), LeaseViolation::TwoHolders)?;
                let grew = grant.token > before.counter && grant.token > standing.floor;
                must(grew, LeaseViolation::TokenDidNotGrow)?;
                let told = decision.deadline == DeadlineChange::LastsMs(grant.remaining_ms);
                must(told, LeaseViolation::ToldAnotherDeadline)?;
            }
        }
        Ok(LeaseCommandResult::Renewed(renewal)) => {
            must(live_ms.is_some() && asker == holder, LeaseViolation::RenewalRevived)?;
            let told = decision.deadline == DeadlineChange::LastsMs(renewal.remaining_ms);
            must(told, LeaseViolation::ToldAnotherDeadline)?;
            let unchanged = decision.record.is_none() && renewal.token == before.counter;
            must(unchanged, LeaseViolation::RenewalChangedTheRecord)?;
        }
        Ok(LeaseCommandResult::Revoked(revoked)) => {
            must(revoked.consumed_token > revoked.token, LeaseViolation::ForceWithoutToken)?;
            must(after.counter >= revoked.consumed_token, LeaseViolation::ForceWithoutToken)?;
        }
        Ok(LeaseCommandResult::Expired { .. }) => must(live_ms.is_none(), LeaseViolation::LiveLeaseExpired)?,
        Err(Refusal::StoreRewound { .. }) => {
            must(decision.record.is_none(), LeaseViolation::EndingNotRecorded)?;
        }
        Ok(_) | Err(_) => {}
    }
    if matches!(command, LeaseCommand::Expire) {
        must(live_ms.is_none() || decision.record.is_none(), LeaseViolation::LiveLeaseExpired)?;
    }
    Ok(())
}

fn well_formed(record: &LeaseRecord) -> bool {
    let endings = record.endings();
    endings.len() <= HISTORY_MAX
        && endings.windows(2).all(|pair| pair[0].token < pair[1].token)
        && endings.last().is_none_or(|last| last.token <= record.counter)
}
