//! How attempts end by their holders' own reports: completed, failed, snoozed, released, stopped at an intent.
//!
//! The first report stands. The same report again gets the same answer; another report on an attempt that is over is
//! refused.

use super::attempt::AttemptOutcome;
use super::command::{AttemptProof, JobCommandResult, JobRefusal, ReportedAttempt};
use super::decide::{AttemptStatus, Decided, JobCase, JobDecision};
use super::record::JobRecord;
use super::state::{Due, JobState};
use crate::event::{BlockedAction, EventData};
use crate::lease::{DeadlineChange, HoldState, answer};
use crate::limits::{CRASH_NOTICED_MS, CRASH_SPREAD_MS, ERROR_BYTES_KEPT};
use crate::time::Timestamp;

impl JobCase<'_> {
    pub(super) fn complete(&self, by: AttemptProof) -> Decided {
        let completed = (JobState::Completed, Due::Now);
        match self.speaker(by, BlockedAction::Complete)? {
            AttemptStatus::Live(..) => Ok(self.over(AttemptOutcome::Completed, None, completed)),
            AttemptStatus::Unnoted(_) => Ok(self.over(AttemptOutcome::CompletedLate, None, completed)),
            AttemptStatus::Over(attempt) => match attempt.outcome {
                // The same report again.
                AttemptOutcome::Completed | AttemptOutcome::CompletedLate
                    if self.record.state == JobState::Completed =>
                {
                    Ok(self.repeated(attempt.outcome))
                }
                how if self.is_open_to(attempt) => {
                    let mut record = self.late(how, AttemptOutcome::CompletedLate, None);
                    settle(&mut record, completed, self.standing.now);
                    Ok(self.ended(record, DeadlineChange::Keep, AttemptOutcome::CompletedLate))
                }
                how => Err(self.refuse(by, how, BlockedAction::Complete)),
            },
        }
    }

    pub(super) fn fail(
        &self,
        by: AttemptProof,
        error: &str,
        retry_in_ms: Option<u64>,
        for_good: bool,
        random: u64,
    ) -> Decided {
        if let Some(again) = self.reported_before(by, &[AttemptOutcome::Failed, AttemptOutcome::FailedLate]) {
            return Ok(again);
        }
        let (mut record, deadline, how) = match self.speaker(by, BlockedAction::Fail)? {
            AttemptStatus::Live(..) => self.end_claim(AttemptOutcome::Failed, Some(kept(error))),
            AttemptStatus::Unnoted(_) => self.end_claim(AttemptOutcome::FailedLate, Some(kept(error))),
            AttemptStatus::Over(attempt) if self.is_open_to(attempt) => {
                let how = AttemptOutcome::FailedLate;
                (self.late(attempt.outcome, how, Some(kept(error))), DeadlineChange::Keep, how)
            }
            AttemptStatus::Over(attempt) => {
                return Err(self.refuse(by, attempt.outcome, BlockedAction::Fail));
            }
        };
        let next = count_failure(&mut record, retry_in_ms, for_good, random, self.standing.now);
        settle(&mut record, self.unless_called_off(next), self.standing.now);
        Ok(self.ended(record, deadline, how))
    }

    pub(super) fn snooze(&self, by: AttemptProof, for_ms: u64) -> Decided {
        let due = Due::Store(self.standing.now.store_ms.saturating_add(for_ms));
        self.put_back(by, AttemptOutcome::Snoozed, BlockedAction::Snooze, None, (JobState::Scheduled, due))
    }

    pub(super) fn hand_back(&self, by: AttemptProof) -> Decided {
        let queued = (JobState::Queued, Due::Now);
        self.put_back(by, AttemptOutcome::Released, BlockedAction::ReleaseJob, None, queued)
    }

    pub(super) fn stop_at_intent(&self, by: AttemptProof, effect: &str) -> Decided {
        let why = format!("it is not known whether the effect {effect} happened").into_boxed_str();
        let in_doubt = (JobState::InDoubt, Due::Now);
        self.put_back(by, AttemptOutcome::InDoubt, BlockedAction::BeginEffect, Some(why), in_doubt)
    }

    /// A report that was made before gets its answer again, also where another attempt has begun since.
    fn reported_before(&self, by: AttemptProof, outcomes: &[AttemptOutcome]) -> Option<JobDecision> {
        let attempt = self.record.attempt(by.token)?;
        let same = attempt.hash == by.hash && outcomes.contains(&attempt.outcome);
        same.then(|| self.repeated(attempt.outcome))
    }

    /// Ends a live attempt that did not do its work.
    fn put_back(
        &self,
        by: AttemptProof,
        how: AttemptOutcome,
        attempted: BlockedAction,
        error: Option<Box<str>>,
        next: (JobState, Due),
    ) -> Decided {
        if let Some(again) = self.reported_before(by, &[how]) {
            return Ok(again);
        }
        self.live(by, attempted)?;
        Ok(self.over(how, error, self.unless_called_off(next)))
    }

    pub(super) fn abandon(&self, by: AttemptProof) -> JobDecision {
        let queued = self.unless_called_off((JobState::Queued, Due::Now));
        match self.live(by, BlockedAction::ReleaseJob) {
            Ok(_) => self.over(AttemptOutcome::Abandoned, None, queued),
            Err(_) => answer(Ok(JobCommandResult::Nothing)),
        }
    }

    pub(super) fn expire(&self, random: u64) -> Decided {
        let Some(claim) = &self.record.claim else { return Ok(answer(Ok(JobCommandResult::Nothing))) };
        if let HoldState::Live { remaining_ms } = self.standing.term {
            return Err(JobRefusal::NotExpired { remaining_ms }.into());
        }
        let how = self.how_it_ran_out(claim);
        let now = self.standing.now;
        let mut record = self.record.clone();
        let timed_out = how == AttemptOutcome::TimedOut;
        let error = timed_out.then(|| "it ran over the time limit of an attempt".into());
        record.end(how, self.ran_out_at(), error);
        let next = match how {
            AttemptOutcome::TimedOut => count_failure(&mut record, None, false, random, now),
            AttemptOutcome::Crashed => {
                record.crash_count = record.crash_count.saturating_add(1);
                if record.crash_count >= record.options.max_crashes {
                    (JobState::Quarantined, Due::Now)
                } else {
                    // Its place in the spread, which is never longer than it took to notice that its holder is dead.
                    let delay_ms = random % (CRASH_SPREAD_MS.min(claim.ttl_ms) + 1);
                    (JobState::Scheduled, Due::Store(self.spread_from_ms().saturating_add(delay_ms)))
                }
            }
            _ => (JobState::Queued, Due::Now),
        };
        settle(&mut record, self.unless_called_off(next), now);
        let reply = Ok(JobCommandResult::Expired { how });
        Ok(JobDecision { reply, ..self.ended(record, DeadlineChange::Clear, how) })
    }

    /// From when on a crashed job's time away counts: from the end of its claim, so that a slow sweep puts nothing off. But
    /// all that ended in an outage would be due at its end, at once: that counts from when it was noticed.
    fn spread_from_ms(&self) -> u64 {
        let (ended_ms, now_ms) = (self.ran_out_at().store_ms, self.standing.now.store_ms);
        if now_ms.saturating_sub(ended_ms) > CRASH_NOTICED_MS { now_ms } else { ended_ms }
    }

    /// How the job stands from now on, if no one has called it off.
    pub(super) fn unless_called_off(&self, next: (JobState, Due)) -> (JobState, Due) {
        let called_off = self.record.claim.as_ref().is_some_and(|claim| claim.cancel.is_some());
        if called_off { (JobState::Cancelled, Due::Now) } else { next }
    }

    /// Ends the claim in this way, and says how the job stands from now on.
    pub(super) fn over(
        &self,
        how: AttemptOutcome,
        error: Option<Box<str>>,
        next: (JobState, Due),
    ) -> JobDecision {
        let (mut record, deadline, how) = self.end_claim(how, error);
        settle(&mut record, next, self.standing.now);
        self.ended(record, deadline, how)
    }

    fn end_claim(
        &self,
        how: AttemptOutcome,
        error: Option<Box<str>>,
    ) -> (JobRecord, DeadlineChange, AttemptOutcome) {
        let mut record = self.record.clone();
        record.end(how, self.standing.now, error);
        (record, DeadlineChange::Clear, how)
    }

    /// An attempt that had run out reports after all what came of it. What was counted against the job is taken back.
    fn late(&self, ran_out: AttemptOutcome, how: AttemptOutcome, error: Option<Box<str>>) -> JobRecord {
        let mut record = self.record.clone();
        match ran_out {
            AttemptOutcome::Crashed => record.crash_count = record.crash_count.saturating_sub(1),
            AttemptOutcome::TimedOut => record.failure_count = record.failure_count.saturating_sub(1),
            _ => {}
        }
        if let Some(attempt) = record.trail.as_mut().and_then(|trail| trail.attempts.last_mut()) {
            (attempt.outcome, attempt.ended, attempt.error) = (how, self.standing.now, error);
        }
        record
    }

    /// The answer and the fact of an attempt that ended.
    pub(super) fn ended(
        &self,
        record: JobRecord,
        deadline: DeadlineChange,
        how: AttemptOutcome,
    ) -> JobDecision {
        let reported = self.reported(&record, how);
        let fact = record.attempts().last().map(|attempt| EventData::JobAttemptEnded {
            token: attempt.token,
            owner: attempt.owner.clone(),
            outcome: how,
            state: reported.state,
            retry_in_ms: reported.retry_in_ms,
        });
        let reply = Ok(JobCommandResult::Reported(reported));
        JobDecision { record: Some(record), deadline, reply, facts: fact.into_iter().collect() }
    }

    /// The answer to a report that was heard before.
    fn repeated(&self, how: AttemptOutcome) -> JobDecision {
        answer(Ok(JobCommandResult::Reported(self.reported(self.record, how))))
    }

    fn reported(&self, record: &JobRecord, how: AttemptOutcome) -> ReportedAttempt {
        let now = self.standing.now;
        let waits = matches!(record.state, JobState::Queued | JobState::Scheduled);
        ReportedAttempt {
            state: record.state_at(now),
            retry_in_ms: waits.then(|| record.due.in_ms(now)),
            late: matches!(how, AttemptOutcome::CompletedLate | AttemptOutcome::FailedLate),
        }
    }
}

/// Counts a failure and says what follows from it.
fn count_failure(
    record: &mut JobRecord,
    retry_in_ms: Option<u64>,
    for_good: bool,
    random: u64,
    now: Timestamp,
) -> (JobState, Due) {
    record.failure_count = record.failure_count.saturating_add(1);
    if for_good || record.failure_count >= record.options.max_failures {
        return (JobState::Failed, Due::Now);
    }
    let by_policy_ms = || record.options.retry.delay_ms(u32::from(record.failure_count), random);
    let delay_ms = retry_in_ms.unwrap_or_else(by_policy_ms);
    (JobState::Scheduled, Due::Store(now.store_ms.saturating_add(delay_ms)))
}

/// Says how a job stands from now on.
pub(super) fn settle(record: &mut JobRecord, (state, due): (JobState, Due), now: Timestamp) {
    record.state = state;
    record.due = due;
    record.since_wall_ms = now.wall_ms;
}

/// As much of an error as is kept.
fn kept(error: &str) -> Box<str> {
    let mut end = error.len().min(ERROR_BYTES_KEPT);
    while !error.is_char_boundary(end) {
        end -= 1;
    }
    error[..end].into()
}
