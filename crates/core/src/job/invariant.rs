//! What must be true of every decision about a job, by name. Checked in debug builds and tests wherever a decision is
//! made, and again by simulations and models of the rules.

use std::fmt;

use super::attempt::AttemptOutcome;
use super::command::{AttemptProof, JobCommand, JobCommandResult};
use super::decide::{JobDecision, JobStanding};
use super::record::{Claim, JobRecord};
use super::state::{Due, JobState};
use crate::invariant::must;
use crate::lease::{DeadlineChange, HoldState};
use crate::limits::{TOKEN_MAX, TRAIL_MAX};

/// A rule that a decision about a job broke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobViolation {
    /// P1: a job was given out although another attempt is live.
    TwoHolders,
    /// P2: the job's token went down, or a new attempt's token is not larger than every token before.
    TokenDidNotGrow,
    /// P2: a token passed the cap.
    TokenOverCap,
    /// P3: a renewal changed the record of a live claim.
    RenewalChangedTheRecord,
    /// P3: a renewal was answered although the claim is not live.
    RenewalRevived,
    /// P4: a claim's deadline moved earlier without its holder's or an operator's doing.
    DeadlineMovedEarlier,
    /// P4: a live claim was noted as run out.
    LiveClaimExpired,
    /// P4: the holder was given another deadline than the one that was set.
    ToldAnotherDeadline,
    /// P5: an attempt that is not the job's newest, or that showed a wrong hold id, changed something, or was believed
    /// when it said something new.
    StrangerBelieved,
    /// P5: a refused command changed something.
    RefusalChangedTheJob,
    /// P7: a job that had come to its end stands otherwise, without an operator's word.
    EndDidNotStand,
    /// P9: force did not consume a token.
    ForceWithoutToken,
    /// P10: a claim vanished without an ending on record, or an attempt was counted twice or not at all.
    EndingNotRecorded,
    /// The attempts on record are too many or out of order.
    TrailMalformed,
    /// A deadline was kept without a claim, or a claim without a deadline.
    DeadlineWithoutClaim,
    /// A job is running without a claim, or claimed without running.
    RunningWithoutClaim,
    /// A job waits for nothing, or is ready and still waits.
    DueDoesNotFitState,
    /// Failures or crashes were not counted as the attempt ended.
    Miscounted,
    /// A job is tried again although its failures or its crashes have reached their limit.
    TriedTooOften,
    /// An attempt ended undone, and a request to call the job off was forgotten with it.
    CancelForgotten,
    /// The terms on which a job is tried changed.
    TermsChanged,
}

impl fmt::Display for JobViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "invariant broken: {self:?}")
    }
}

/// Checks one decision against all invariants.
pub fn check(
    standing: &JobStanding,
    before: &JobRecord,
    command: &JobCommand,
    decision: &JobDecision,
) -> Result<(), JobViolation> {
    let after = decision.record.as_ref().unwrap_or(before);
    let step = CheckedDecision { standing, before, after, command, decision };
    step.record_is_well_formed()?;
    step.only_the_newest_attempt_is_believed()?;
    step.the_end_stands()?;
    step.claims_follow_each_other()?;
    step.deadlines_hold()?;
    step.counts_add_up()?;
    step.answers_tell_the_truth()
}

/// One decision, with what was before and what is after it.
struct CheckedDecision<'a> {
    standing: &'a JobStanding,
    before: &'a JobRecord,
    after: &'a JobRecord,
    command: &'a JobCommand,
    decision: &'a JobDecision,
}

impl CheckedDecision<'_> {
    fn live_ms(&self) -> Option<u64> {
        match self.standing.term {
            HoldState::Live { remaining_ms } if self.before.claim.is_some() => Some(remaining_ms),
            _ => None,
        }
    }

    fn same_claim(&self) -> bool {
        let key = |claim: &Claim| (claim.hash, claim.since);
        let (before, after) = (&self.before.claim, &self.after.claim);
        before.as_deref().map(key) == after.as_deref().map(key)
            && (before.is_none() || self.before.token == self.after.token)
    }

    /// How the attempt stood that this decision ended or heard again, and how it stands now.
    fn ending(&self) -> (Option<AttemptOutcome>, Option<AttemptOutcome>) {
        let how = |record: &JobRecord| record.attempt(self.before.token).map(|attempt| attempt.outcome);
        (how(self.before), how(self.after))
    }

    fn record_is_well_formed(&self) -> Result<(), JobViolation> {
        let after = self.after;
        must(after.token >= self.before.token, JobViolation::TokenDidNotGrow)?;
        must(after.token.get() <= TOKEN_MAX, JobViolation::TokenOverCap)?;
        must(after.options == self.before.options, JobViolation::TermsChanged)?;
        let running = after.state == JobState::Running;
        must(running == after.claim.is_some(), JobViolation::RunningWithoutClaim)?;
        let waits = after.state == JobState::Scheduled;
        must(waits == (after.due != Due::Now), JobViolation::DueDoesNotFitState)?;
        let attempts = after.attempts();
        let newest = attempts
            .last()
            .is_none_or(|last| if running { last.token < after.token } else { last.token <= after.token });
        let in_order = attempts.windows(2).all(|pair| pair[0].token < pair[1].token);
        must(attempts.len() <= TRAIL_MAX && in_order && newest, JobViolation::TrailMalformed)
    }

    fn only_the_newest_attempt_is_believed(&self) -> Result<(), JobViolation> {
        let unchanged = self.decision.record.is_none() && self.decision.deadline == DeadlineChange::Keep;
        must(self.decision.reply.is_ok() || unchanged, JobViolation::RefusalChangedTheJob)?;
        let Some(by) = speaker(self.command) else { return Ok(()) };
        let own = |hash| by.token == self.before.token && by.hash == hash;
        let claim = self.before.claim.as_deref().map(|claim| claim.hash);
        let ended = self.before.attempt(by.token).map(|attempt| attempt.hash);
        let is_newest = claim.or(ended).is_some_and(own);
        let heard = !matches!(self.decision.reply, Err(_) | Ok(JobCommandResult::Nothing));
        must(is_newest || (unchanged && (!heard || self.is_said_again(by))), JobViolation::StrangerBelieved)
    }

    /// Whether the attempt that speaks ended by this very word.
    fn is_said_again(&self, by: AttemptProof) -> bool {
        let attempt = self.before.attempt(by.token).filter(|attempt| attempt.hash == by.hash);
        matches!(
            (self.command, attempt.map(|attempt| attempt.outcome)),
            (JobCommand::Fail { .. }, Some(AttemptOutcome::Failed | AttemptOutcome::FailedLate))
                | (JobCommand::Snooze { .. }, Some(AttemptOutcome::Snoozed))
                | (JobCommand::HandBack(_), Some(AttemptOutcome::Released))
                | (JobCommand::StopAtIntent { .. }, Some(AttemptOutcome::InDoubt))
        )
    }

    fn the_end_stands(&self) -> Result<(), JobViolation> {
        let (before, after) = (self.before.state, self.after.state);
        let by_operator = matches!(self.command, JobCommand::Retry { .. } | JobCommand::EndByForce { .. });
        let corrected = by_operator && before != JobState::Completed;
        must(!before.is_final() || before == after || corrected, JobViolation::EndDidNotStand)?;
        // No earlier attempt reports on a job that an operator started over or ended.
        let changed = by_operator && self.decision.record.is_some();
        must(!changed || self.after.token > self.standing.newest, JobViolation::ForceWithoutToken)
    }

    fn claims_follow_each_other(&self) -> Result<(), JobViolation> {
        let begun = self.after.claim.is_some() && !self.same_claim();
        must(!begun || self.live_ms().is_none(), JobViolation::TwoHolders)?;
        let ended = self.before.claim.as_deref().filter(|_| !self.same_claim());
        if let Some(claim) = ended {
            let noted = self.after.attempt(self.before.token);
            must(noted.is_some_and(|attempt| attempt.hash == claim.hash), JobViolation::EndingNotRecorded)?;
            let completed = matches!(
                noted.map(|attempt| attempt.outcome),
                Some(AttemptOutcome::Completed | AttemptOutcome::CompletedLate)
            );
            let forced = matches!(self.command, JobCommand::EndByForce { .. });
            let called_off = completed || forced || self.after.state == JobState::Cancelled;
            must(claim.cancel.is_none() || called_off, JobViolation::CancelForgotten)?;
        }
        let counted = self.before.attempt_count() + u32::from(begun);
        must(self.after.attempt_count() == counted, JobViolation::EndingNotRecorded)?;
        let ran_out = ended.is_some() && self.ending().1.is_some_and(AttemptOutcome::ran_out);
        must(!ran_out || self.live_ms().is_none(), JobViolation::LiveClaimExpired)
    }

    fn deadlines_hold(&self) -> Result<(), JobViolation> {
        match self.decision.deadline {
            DeadlineChange::LastsMs(lasts_ms) => {
                must(self.after.claim.is_some(), JobViolation::DeadlineWithoutClaim)?;
                let shortened = self.same_claim() && self.live_ms().is_some_and(|live_ms| lasts_ms < live_ms);
                must(!shortened, JobViolation::DeadlineMovedEarlier)
            }
            DeadlineChange::Clear => must(self.after.claim.is_none(), JobViolation::DeadlineWithoutClaim),
            DeadlineChange::Keep => must(self.same_claim(), JobViolation::DeadlineWithoutClaim),
        }
    }

    /// Crashes are not failures, a failure counts once, and a late word takes back what was counted when nothing was
    /// heard.
    fn counts_add_up(&self) -> Result<(), JobViolation> {
        use AttemptOutcome::{Crashed, Failed, FailedLate, TimedOut};

        let (before, after) = (self.before, self.after);
        let restarted = matches!(self.command, JobCommand::Retry { .. }) && self.decision.record.is_some();
        if restarted {
            return must(after.failure_count == 0 && after.crash_count == 0, JobViolation::Miscounted);
        }
        let (was, is) = self.ending();
        let failed = |how| matches!(how, Some(Failed | FailedLate | TimedOut));
        let crashed = |how| how == Some(Crashed);
        let expected = |count: u16, was: bool, is: bool| {
            count.saturating_sub(u16::from(was)).saturating_add(u16::from(is))
        };
        let failure_count = expected(before.failure_count, failed(was), failed(is));
        let crash_count = expected(before.crash_count, crashed(was), crashed(is));
        let counts = (after.failure_count, after.crash_count);
        must(counts == (failure_count, crash_count), JobViolation::Miscounted)?;
        if was != is && matches!(after.state, JobState::Queued | JobState::Scheduled) {
            let too_often = failed(is) && after.failure_count >= after.options.max_failures
                || crashed(is) && after.crash_count >= after.options.max_crashes;
            must(!too_often, JobViolation::TriedTooOften)?;
        }
        Ok(())
    }

    fn answers_tell_the_truth(&self) -> Result<(), JobViolation> {
        let (before, after, decision) = (self.before, self.after, self.decision);
        match &decision.reply {
            Ok(JobCommandResult::Claimed { token, remaining_ms, .. }) => {
                let grew = *token > before.token && *token > self.standing.newest && *token == after.token;
                must(grew, JobViolation::TokenDidNotGrow)?;
                must(after.claim.is_some() && !self.same_claim(), JobViolation::RunningWithoutClaim)?;
                let told = decision.deadline == DeadlineChange::LastsMs(*remaining_ms);
                must(told, JobViolation::ToldAnotherDeadline)
            }
            Ok(JobCommandResult::Renewed(renewal)) => {
                must(self.live_ms().is_some(), JobViolation::RenewalRevived)?;
                let told = decision.deadline == DeadlineChange::LastsMs(renewal.remaining_ms);
                must(told, JobViolation::ToldAnotherDeadline)?;
                let unchanged = decision.record.is_none() && renewal.token == before.token;
                must(unchanged, JobViolation::RenewalChangedTheRecord)
            }
            Ok(JobCommandResult::Expired { .. }) => {
                must(self.live_ms().is_none(), JobViolation::LiveClaimExpired)
            }
            Ok(JobCommandResult::EndedByForce { state }) => {
                must(*state == after.state && state.is_final(), JobViolation::EndDidNotStand)
            }
            Ok(JobCommandResult::Cancelled { state }) => {
                must(*state == after.state, JobViolation::EndDidNotStand)?;
                let by_force = self.ending() == (None, Some(AttemptOutcome::Revoked));
                must(!by_force || after.token > self.standing.newest, JobViolation::ForceWithoutToken)
            }
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

/// The attempt that a command speaks for, where it speaks for one.
fn speaker(command: &JobCommand) -> Option<AttemptProof> {
    match command {
        JobCommand::Renew(by)
        | JobCommand::Complete(by)
        | JobCommand::HandBack(by)
        | JobCommand::Abandon(by)
        | JobCommand::Fail { by, .. }
        | JobCommand::Snooze { by, .. }
        | JobCommand::Write { by, .. }
        | JobCommand::StopAtIntent { by, .. } => Some(*by),
        JobCommand::Claim { .. }
        | JobCommand::Expire { .. }
        | JobCommand::Cancel { .. }
        | JobCommand::EndByForce { .. }
        | JobCommand::Retry { .. }
        | JobCommand::Delete { .. }
        | JobCommand::Preempt(_)
        | JobCommand::Withdraw
        | JobCommand::Advance => None,
    }
}
