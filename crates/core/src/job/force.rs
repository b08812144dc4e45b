//! What others than its holder can do to a job: call it off, start it over, forget it, ask for room.

use super::attempt::{AttemptOutcome, PastAttempt};
use super::command::{JobCommandResult, JobRefusal};
use super::decide::{JobCase, JobDecision, answer, not_now};
use super::record::{CancelRequest, CompensationState, JobRecord};
use super::report::settle;
use super::state::{Due, JobState};
use crate::event::EventData;
use crate::key::{Owner, Reason};
use crate::lease::{DeadlineChange, HoldState, PendingYield, PreemptRequest};
use crate::token::Token;

impl JobCase<'_> {
    pub(super) fn cancel(&self, by: &Owner, reason: Option<&Reason>, now: bool) -> JobDecision {
        let state = self.record.state;
        if state == JobState::Cancelled {
            return answer(Ok(JobCommandResult::Cancelled { state }));
        }
        if state.is_final() {
            return answer(Err(JobRefusal::Finished { state }));
        }
        let cancel = CancelRequest { by: by.clone(), reason: reason.cloned() };
        let live = matches!(self.standing.term, HoldState::Live { .. });
        match &self.record.claim {
            Some(claim) if live && !now => {
                if claim.cancel.is_some() {
                    return answer(Ok(JobCommandResult::Cancelled { state }));
                }
                let mut record = self.record.clone();
                if let Some(claim) = &mut record.claim {
                    claim.cancel = Some(Box::new(cancel));
                }
                let (by, reason) = (by.clone(), reason.cloned());
                JobDecision {
                    record: Some(record),
                    facts: vec![EventData::JobCancelRequested { token: self.record.token, by, reason }],
                    ..answer(Ok(JobCommandResult::Cancelled { state }))
                }
            }
            // Also one that has run out unnoticed: whatever checks tokens must refuse its holder from now on.
            Some(_) if now => self.cancel_by_force(&cancel),
            Some(_) => self.cancel_run_out(&cancel),
            None => self.cancelled(self.record.clone(), &cancel),
        }
    }

    /// The claim has run out unnoticed: that is noted first, as a sweep would have.
    fn cancel_run_out(&self, cancel: &CancelRequest) -> JobDecision {
        let mut record = self.record.clone();
        if let Some(claim) = &mut record.claim {
            claim.cancel = Some(Box::new(cancel.clone()));
        }
        let mut decision = JobCase { standing: self.standing, record: &record }.expire(0);
        let (by, reason) = (cancel.by.clone(), cancel.reason.clone());
        decision.facts.push(EventData::JobCancelled { by, reason });
        decision.reply = Ok(JobCommandResult::Cancelled { state: JobState::Cancelled });
        decision
    }

    /// Does not wait for the holder: its token is not the newest any more, so whatever it still writes is refused.
    fn cancel_by_force(&self, cancel: &CancelRequest) -> JobDecision {
        let Some(consumed) = self.consumed() else { return answer(Err(JobRefusal::TokensExhausted)) };
        let mut record = self.record.clone();
        let why = cancel.reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"));
        record.end(
            AttemptOutcome::Revoked,
            self.standing.now,
            Some(format!("cancelled by {}{why}", cancel.by).into()),
        );
        record.token = consumed;
        self.cancelled(record, cancel)
    }

    fn cancelled(&self, mut record: JobRecord, cancel: &CancelRequest) -> JobDecision {
        settle(&mut record, JobState::Cancelled, Due::Now, self.standing.now);
        let (by, reason) = (cancel.by.clone(), cancel.reason.clone());
        JobDecision {
            record: Some(record),
            deadline: DeadlineChange::Clear,
            reply: Ok(JobCommandResult::Cancelled { state: JobState::Cancelled }),
            facts: vec![EventData::JobCancelled { by, reason }],
        }
    }

    pub(super) fn retry(&self, by: &Owner) -> JobDecision {
        let state = self.record.state_at(self.standing.now);
        match state {
            JobState::Queued if !self.has_a_past() => return answer(Ok(JobCommandResult::Retried)),
            JobState::Running => {
                return answer(Err(not_now(
                    state,
                    "an attempt is under way; cancel it first, or let it end",
                )));
            }
            JobState::Completed => return answer(Err(JobRefusal::Finished { state })),
            JobState::Queued
            | JobState::Scheduled
            | JobState::Failed
            | JobState::Cancelled
            | JobState::Quarantined
            | JobState::InDoubt => {}
        }
        if self.record.compensation_state != CompensationState::None {
            let why =
                "its effects have been compensated, or are being compensated; enqueue a new job instead";
            return answer(Err(not_now(state, why)));
        }
        // A token is consumed: a worker that had the job before this decision must not complete it afterwards.
        let Some(consumed) = self.consumed() else { return answer(Err(JobRefusal::TokensExhausted)) };
        let mut record = self.record.clone();
        record.token = consumed;
        record.failure_count = 0;
        record.crash_count = 0;
        settle(&mut record, JobState::Queued, Due::Now, self.standing.now);
        JobDecision {
            record: Some(record),
            facts: vec![EventData::JobRetried { by: by.clone(), state }],
            ..answer(Ok(JobCommandResult::Retried))
        }
    }

    /// Whether starting over changes anything: something is counted against the job, or a worker may still report on it.
    fn has_a_past(&self) -> bool {
        let may_speak = self.record.attempts().last().is_some_and(|last| self.may_still_speak(last));
        self.record.failure_count > 0 || self.record.crash_count > 0 || may_speak
    }

    fn may_still_speak(&self, last: &PastAttempt) -> bool {
        last.token == self.record.token && self.is_open_to(last)
    }

    pub(super) fn delete(&self, force: bool) -> JobDecision {
        if let (Some(claim), HoldState::Live { remaining_ms }, false) =
            (&self.record.claim, self.standing.term, force)
        {
            return answer(Err(JobRefusal::JobRunning {
                owner: claim.owner.clone(),
                token: self.record.token,
                remaining_ms,
            }));
        }
        if self.record.compensation_state == CompensationState::Running && !force {
            return answer(Err(not_now(
                self.record.state,
                "its effects are being compensated; that has to end first",
            )));
        }
        answer(Ok(JobCommandResult::Deleted))
    }

    pub(super) fn preempt(&self, ask: &PreemptRequest) -> JobDecision {
        let (Some(claim), HoldState::Live { .. }) = (&self.record.claim, self.standing.term) else {
            return answer(Err(not_now(self.record.state, "no attempt is running")));
        };
        let held = self.record.options.priority;
        if ask.priority <= held {
            return answer(Err(JobRefusal::PriorityTooLow { priority: held }));
        }
        if claim
            .yield_request
            .as_ref()
            .is_some_and(|notice| notice.priority >= ask.priority)
        {
            return answer(Ok(JobCommandResult::Nothing));
        }
        let now_ms = self.standing.now.store_ms;
        let promised_ms = claim.yield_request.as_ref().map_or(u64::MAX, |notice| notice.yield_at_ms);
        let yield_at_ms = now_ms.saturating_add(ask.yield_in_ms).min(promised_ms);
        let mut record = self.record.clone();
        if let Some(claim) = &mut record.claim {
            claim.yield_request = Some(Box::new(PendingYield {
                contender: ask.contender.clone(),
                task: ask.task.clone(),
                priority: ask.priority,
                yield_at_ms,
            }));
        }
        JobDecision {
            record: Some(record),
            facts: vec![EventData::YieldRequested {
                token: self.record.token,
                contender: ask.contender.clone(),
                task: ask.task.clone(),
                priority: ask.priority,
                yield_in_ms: yield_at_ms.saturating_sub(now_ms),
            }],
            ..answer(Ok(JobCommandResult::Nothing))
        }
    }

    pub(super) fn withdraw(&self) -> JobDecision {
        let asked = self.record.claim.as_ref().is_some_and(|claim| claim.yield_request.is_some());
        if !asked || !matches!(self.standing.term, HoldState::Live { .. }) {
            return answer(Ok(JobCommandResult::Nothing));
        }
        let mut record = self.record.clone();
        if let Some(claim) = &mut record.claim {
            claim.yield_request = None;
        }
        JobDecision {
            record: Some(record),
            facts: vec![EventData::YieldWithdrawn { token: self.record.token }],
            ..answer(Ok(JobCommandResult::Nothing))
        }
    }

    pub(super) fn advance(&self) -> JobDecision {
        let mut decision = match &self.record.claim {
            Some(claim) => {
                let state = if claim.cancel.is_some() { JobState::Cancelled } else { JobState::Queued };
                self.over(AttemptOutcome::Advanced, self.standing.now, None, state, Due::Now)
            }
            // Someone may have had the job in the time that was lost, so what was late before is stale now.
            None if self.record.attempts().last().is_some_and(|last| self.may_still_speak(last)) => {
                JobDecision { record: Some(self.record.clone()), ..answer(Ok(JobCommandResult::Nothing)) }
            }
            None => return answer(Ok(JobCommandResult::Nothing)),
        };
        if let Some(record) = &mut decision.record {
            // The store has lifted its counter already: nothing from before speaks for this job any more.
            record.token = self.standing.newest.max(self.record.token);
        }
        decision.reply = Ok(JobCommandResult::Nothing);
        decision
    }

    fn consumed(&self) -> Option<Token> {
        self.standing.newest.max(self.record.token).lifted(1)
    }
}
