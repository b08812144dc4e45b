//! What others than its holder can do to a job: call it off, end it by force, start it over, forget it, ask for room.

use super::attempt::AttemptOutcome;
use super::command::{ForcedState, JobCommandResult, JobRefusal};
use super::decide::{Decided, JobCase, JobDecision, Refused, not_now};
use super::record::{CancelRequest, CompensationState};
use super::report::settle;
use super::state::{Due, JobState};
use crate::event::EventData;
use crate::key::{Owner, Reason};
use crate::lease::{DeadlineChange, PreemptRequest, answer};
use crate::token::Token;

impl JobCase<'_> {
    pub(super) fn cancel(&self, by: &Owner, reason: Option<&Reason>, now: bool) -> Decided {
        let state = self.record.state;
        let unchanged = answer(Ok(JobCommandResult::Cancelled { state }));
        if state == JobState::Cancelled {
            return Ok(unchanged);
        }
        if state.is_final() {
            return Err(JobRefusal::Finished { state }.into());
        }
        let (by, reason) = (by.clone(), reason.cloned());
        let Some(claim) = self.record.claim.as_ref().filter(|_| !now) else {
            return self.cancel_at_once(by, reason);
        };
        let live = self.standing.term.is_live();
        if live && claim.cancel.is_some() {
            return Ok(unchanged);
        }
        let mut record = self.record.clone();
        if let Some(claim) = &mut record.claim {
            claim.cancel = Some(Box::new(CancelRequest { by: by.clone(), reason: reason.clone() }));
        }
        if live {
            let facts = vec![EventData::JobCancelRequested { token: record.token, by, reason }];
            return Ok(JobDecision { record: Some(record), facts, ..unchanged });
        }
        // It has run out unnoticed: that is noted first, as a sweep would have.
        let mut decision = JobCase { standing: self.standing, record: &record }.expire(0)?;
        decision.facts.push(EventData::JobCancelled { by, reason });
        decision.reply = Ok(JobCommandResult::Cancelled { state: JobState::Cancelled });
        Ok(decision)
    }

    /// Does not wait for a holder, also of a claim that has run out unnoticed.
    fn cancel_at_once(&self, by: Owner, reason: Option<Reason>) -> Decided {
        let mut decision = if self.record.claim.is_some() {
            self.settle_by_force(JobState::Cancelled, &by, reason.as_ref())?
        } else {
            let mut record = self.record.clone();
            settle(&mut record, (JobState::Cancelled, Due::Now), self.standing.now);
            JobDecision { record: Some(record), ..answer(Ok(JobCommandResult::Nothing)) }
        };
        decision.deadline = DeadlineChange::Clear;
        decision.reply = Ok(JobCommandResult::Cancelled { state: JobState::Cancelled });
        decision.facts.push(EventData::JobCancelled { by, reason });
        Ok(decision)
    }

    /// A person reports in place of the holder, who never will.
    pub(super) fn end_by_force(&self, state: ForcedState, by: &Owner, reason: &Reason) -> Decided {
        let before = self.record.state_at(self.standing.now);
        let is_done = match state {
            ForcedState::Completed => before == JobState::Completed,
            ForcedState::Failed => before.is_final(),
        };
        if is_done {
            return Err(JobRefusal::Finished { state: before }.into());
        }
        self.check_not_compensated("its end stands")?;
        let mut decision = self.settle_by_force(state.into(), by, Some(reason))?;
        let (by, reason, state) = (by.clone(), reason.clone(), state.into());
        decision.reply = Ok(JobCommandResult::EndedByForce { state });
        decision.facts.push(EventData::JobEndedByForce { by, reason, state });
        Ok(decision)
    }

    /// A token is consumed, so that whatever a holder still writes is refused.
    fn settle_by_force(&self, state: JobState, by: &Owner, reason: Option<&Reason>) -> Decided {
        let (token, is_held, now) = (self.consumed()?, self.record.claim.is_some(), self.standing.now);
        let mut record = self.record.clone();
        if is_held {
            let why = reason.map_or_else(String::new, |reason| format!(": {reason}"));
            record.end(AttemptOutcome::Revoked, now, Some(format!("{state} by {by}{why}").into()));
        }
        record.token = token;
        settle(&mut record, (state, Due::Now), now);
        let mut decision = self.ended(record, DeadlineChange::Clear, AttemptOutcome::Revoked);
        decision.facts.retain(|_| is_held);
        Ok(decision)
    }

    pub(super) fn retry(&self, by: &Owner) -> Decided {
        let state = self.record.state_at(self.standing.now);
        match state {
            JobState::Queued if !self.has_a_past() => return Ok(answer(Ok(JobCommandResult::Retried))),
            JobState::Running => {
                return Err(not_now(state, "an attempt is under way; cancel it first, or let it end"));
            }
            JobState::Completed => return Err(JobRefusal::Finished { state }.into()),
            JobState::Queued
            | JobState::Scheduled
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Quarantined
            | JobState::InDoubt => {}
        }
        self.check_not_compensated("enqueue a new job instead")?;
        let mut record = self.record.clone();
        // A token is consumed: a worker that had the job before this decision must not complete it afterwards.
        record.token = self.consumed()?;
        record.failure_count = 0;
        record.crash_count = 0;
        settle(&mut record, (JobState::Queued, Due::Now), self.standing.now);
        let facts = vec![EventData::JobRetried { by: by.clone(), state }];
        Ok(JobDecision { record: Some(record), facts, ..answer(Ok(JobCommandResult::Retried)) })
    }

    /// Refuses what would make a job's effects count again that were undone.
    fn check_not_compensated(&self, instead: &str) -> Result<(), Refused> {
        if self.record.compensation_state == CompensationState::None {
            return Ok(());
        }
        let why = format!("its effects have been compensated, or are being compensated; {instead}");
        Err(not_now(self.record.state_at(self.standing.now), &why))
    }

    /// Whether starting over changes anything: something is counted against the job, or a worker may still report on it.
    fn has_a_past(&self) -> bool {
        self.record.failure_count > 0 || self.record.crash_count > 0 || self.last_may_still_report()
    }

    fn last_may_still_report(&self) -> bool {
        let last = self.record.attempts().last();
        last.is_some_and(|last| last.token == self.record.token && self.is_open_to(last))
    }

    pub(super) fn delete(&self, force: bool) -> Decided {
        if !force {
            self.check_not_running()?;
            if self.record.compensation_state == CompensationState::Running {
                let why = "its effects are being compensated; that has to end first";
                return Err(not_now(self.record.state, why));
            }
        }
        Ok(answer(Ok(JobCommandResult::Deleted)))
    }

    pub(super) fn preempt(&self, ask: &PreemptRequest) -> Decided {
        let Some(claim) = self.record.claim.as_ref().filter(|_| self.standing.term.is_live()) else {
            return Err(not_now(self.record.state, "no attempt is running"));
        };
        let priority = self.record.options.priority;
        if ask.priority <= priority {
            return Err(JobRefusal::PriorityTooLow { priority }.into());
        }
        let nothing = answer(Ok(JobCommandResult::Nothing));
        if claim
            .yield_request
            .as_ref()
            .is_some_and(|notice| notice.priority >= ask.priority)
        {
            return Ok(nothing);
        }
        let now_ms = self.standing.now.store_ms;
        let pending = ask.pending(now_ms, claim.yield_request.as_deref());
        let facts = vec![pending.requested(self.record.token, now_ms)];
        let mut record = self.record.clone();
        if let Some(claim) = &mut record.claim {
            claim.yield_request = Some(Box::new(pending));
        }
        Ok(JobDecision { record: Some(record), facts, ..nothing })
    }

    pub(super) fn withdraw(&self) -> JobDecision {
        let nothing = answer(Ok(JobCommandResult::Nothing));
        let asked = self.record.claim.as_ref().is_some_and(|claim| claim.yield_request.is_some());
        if !asked || !self.standing.term.is_live() {
            return nothing;
        }
        let mut record = self.record.clone();
        if let Some(claim) = &mut record.claim {
            claim.yield_request = None;
        }
        let facts = vec![EventData::YieldWithdrawn { token: self.record.token }];
        JobDecision { record: Some(record), facts, ..nothing }
    }

    pub(super) fn advance(&self) -> JobDecision {
        let nothing = answer(Ok(JobCommandResult::Nothing));
        let mut decision = if self.record.claim.is_some() {
            let next = self.unless_called_off((JobState::Queued, Due::Now));
            self.over(AttemptOutcome::Advanced, None, next)
        } else if self.last_may_still_report() {
            // Someone may have had the job in the time that was lost, so what was late before is stale now.
            JobDecision { record: Some(self.record.clone()), ..nothing }
        } else {
            return nothing;
        };
        if let Some(record) = &mut decision.record {
            // The store has lifted its counter already: nothing from before speaks for this job any more.
            record.token = self.standing.newest.max(self.record.token);
        }
        JobDecision { reply: Ok(JobCommandResult::Nothing), ..decision }
    }

    fn consumed(&self) -> Result<Token, JobRefusal> {
        let newest = self.standing.newest.max(self.record.token);
        newest.lifted(1).ok_or(JobRefusal::TokensExhausted)
    }
}
