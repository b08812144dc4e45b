//! How attempts end by their holders' own word: completed, failed, snoozed, released, stopped at an intent.
//!
//! The first word stands. The same word again gets the same answer; another word about an attempt that is over is
//! refused.

use super::attempt::AttemptOutcome;
use super::command::{AttemptProof, JobCommandResult, JobRefusal, ReportedAttempt};
use super::decide::{AttemptStatus, JobCase, JobDecision, answer};
use super::record::JobRecord;
use super::state::{Due, JobState};
use crate::event::{BlockedAction, EventData};
use crate::lease::{DeadlineChange, HoldState};
use crate::limits::{CRASH_NOTICED_MS, CRASH_SPREAD_MS, ERROR_BYTES_KEPT};
use crate::time::Timestamp;

impl JobCase<'_> {
    pub(super) fn complete(&self, by: AttemptProof) -> JobDecision {
        let speaker = match self.speaker(by, BlockedAction::Complete) {
            Ok(speaker) => speaker,
            Err(refused) => return *refused,
        };
        match speaker {
            AttemptStatus::Live(..) => {
                self.over(AttemptOutcome::Completed, self.standing.now, None, JobState::Completed, Due::Now)
            }
            AttemptStatus::Unnoted(_) => self.over(
                AttemptOutcome::CompletedLate,
                self.standing.now,
                None,
                JobState::Completed,
                Due::Now,
            ),
            AttemptStatus::Over(attempt) => match attempt.outcome {
                // The same word again.
                AttemptOutcome::Completed | AttemptOutcome::CompletedLate
                    if self.record.state == JobState::Completed =>
                {
                    self.reported(self.record, attempt.outcome == AttemptOutcome::CompletedLate)
                }
                how if self.is_open_to(attempt) => {
                    let mut decision = self.late(how, AttemptOutcome::CompletedLate, None);
                    if let Some(record) = &mut decision.record {
                        settle(record, JobState::Completed, Due::Now, self.standing.now);
                    }
                    self.tell(decision, AttemptOutcome::CompletedLate)
                }
                how => self.refuse(by, how, BlockedAction::Complete),
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
    ) -> JobDecision {
        if let Some(again) = self.said_before(by, &[AttemptOutcome::Failed, AttemptOutcome::FailedLate]) {
            return again;
        }
        let speaker = match self.speaker(by, BlockedAction::Fail) {
            Ok(speaker) => speaker,
            Err(refused) => return *refused,
        };
        let how = match speaker {
            AttemptStatus::Live(..) => AttemptOutcome::Failed,
            AttemptStatus::Unnoted(_) => AttemptOutcome::FailedLate,
            AttemptStatus::Over(attempt) => match attempt.outcome {
                how if self.is_open_to(attempt) => {
                    let mut decision = self.late(how, AttemptOutcome::FailedLate, Some(kept(error)));
                    if let Some(record) = &mut decision.record {
                        count_failure(record, None, retry_in_ms, for_good, random, self.standing.now);
                    }
                    return self.tell(decision, AttemptOutcome::FailedLate);
                }
                how => return self.refuse(by, how, BlockedAction::Fail),
            },
        };
        let mut record = self.record.clone();
        let cancelled = record.claim.as_ref().is_some_and(|claim| claim.cancel.is_some());
        record.end(how, self.standing.now, Some(kept(error)));
        let instead = cancelled.then_some(JobState::Cancelled);
        count_failure(&mut record, instead, retry_in_ms, for_good, random, self.standing.now);
        self.tell(
            JobDecision {
                record: Some(record),
                deadline: DeadlineChange::Clear,
                ..answer(Ok(JobCommandResult::Nothing))
            },
            how,
        )
    }

    pub(super) fn snooze(&self, by: AttemptProof, for_ms: u64) -> JobDecision {
        let due = Due::Store(self.standing.now.store_ms.saturating_add(for_ms));
        self.put_back(by, AttemptOutcome::Snoozed, BlockedAction::Snooze, JobState::Scheduled, due)
    }

    pub(super) fn hand_back(&self, by: AttemptProof) -> JobDecision {
        self.put_back(by, AttemptOutcome::Released, BlockedAction::ReleaseJob, JobState::Queued, Due::Now)
    }

    /// The same word again was heard the first time, also where another attempt has begun since.
    fn said_before(&self, by: AttemptProof, words: &[AttemptOutcome]) -> Option<JobDecision> {
        let attempt = self.record.attempt(by.token)?;
        let same = attempt.hash == by.hash && words.contains(&attempt.outcome);
        same.then(|| self.reported(self.record, attempt.outcome == AttemptOutcome::FailedLate))
    }

    fn put_back(
        &self,
        by: AttemptProof,
        how: AttemptOutcome,
        attempted: BlockedAction,
        state: JobState,
        due: Due,
    ) -> JobDecision {
        if let Some(again) = self.said_before(by, &[how]) {
            return again;
        }
        match self.live(by, attempted) {
            Ok((claim, _)) if claim.cancel.is_some() => {
                self.over(how, self.standing.now, None, JobState::Cancelled, Due::Now)
            }
            Ok(_) => self.over(how, self.standing.now, None, state, due),
            Err(refused) => *refused,
        }
    }

    pub(super) fn abandon(&self, by: AttemptProof) -> JobDecision {
        match self.live(by, BlockedAction::ReleaseJob) {
            Ok((claim, _)) => {
                let state = if claim.cancel.is_some() { JobState::Cancelled } else { JobState::Queued };
                self.over(AttemptOutcome::Abandoned, self.standing.now, None, state, Due::Now)
            }
            Err(_) => answer(Ok(JobCommandResult::Nothing)),
        }
    }

    pub(super) fn stop_at_intent(&self, by: AttemptProof, effect: &str) -> JobDecision {
        if let Some(again) = self.said_before(by, &[AttemptOutcome::InDoubt]) {
            return again;
        }
        match self.live(by, BlockedAction::BeginEffect) {
            Ok((claim, _)) => {
                let why = format!("it is not known whether the effect {effect} happened").into_boxed_str();
                let called_off = claim.cancel.is_some();
                let state = if called_off { JobState::Cancelled } else { JobState::InDoubt };
                self.over(AttemptOutcome::InDoubt, self.standing.now, Some(why), state, Due::Now)
            }
            Err(refused) => *refused,
        }
    }

    pub(super) fn expire(&self, random: u64) -> JobDecision {
        let Some(claim) = &self.record.claim else { return answer(Ok(JobCommandResult::Nothing)) };
        if let HoldState::Live { remaining_ms } = self.standing.term {
            return answer(Err(JobRefusal::NotExpired { remaining_ms }));
        }
        let how = self.how_it_ran_out(claim);
        let now = self.standing.now;
        let mut record = self.record.clone();
        let called_off = claim.cancel.is_some();
        let error =
            (how == AttemptOutcome::TimedOut).then(|| "it ran over the time limit of an attempt".into());
        record.end(how, self.ran_out_at(), error);
        match how {
            AttemptOutcome::TimedOut => {
                count_failure(
                    &mut record,
                    called_off.then_some(JobState::Cancelled),
                    None,
                    false,
                    random,
                    now,
                );
            }
            AttemptOutcome::Crashed => {
                record.crash_count = record.crash_count.saturating_add(1);
                let (state, due) = if called_off {
                    (JobState::Cancelled, Due::Now)
                } else if record.crash_count >= record.options.max_crashes {
                    (JobState::Quarantined, Due::Now)
                } else {
                    (
                        JobState::Scheduled,
                        Due::Store(self.spread_from_ms().saturating_add(crash_delay_ms(random))),
                    )
                };
                settle(&mut record, state, due, now);
            }
            _ => {
                settle(
                    &mut record,
                    if called_off { JobState::Cancelled } else { JobState::Queued },
                    Due::Now,
                    now,
                );
            }
        }
        let mut decision = self.tell(
            JobDecision {
                record: Some(record),
                deadline: DeadlineChange::Clear,
                ..answer(Ok(JobCommandResult::Nothing))
            },
            how,
        );
        decision.reply = Ok(JobCommandResult::Expired { how });
        decision
    }

    /// From when on a crashed job's time away counts: from the end of its claim, so that a slow sweep puts nothing off. But
    /// all that ended in an outage would be due at its end, at once: that counts from when it was noticed.
    fn spread_from_ms(&self) -> u64 {
        let (ended_ms, now_ms) = (self.ran_out_at().store_ms, self.standing.now.store_ms);
        if now_ms.saturating_sub(ended_ms) > CRASH_NOTICED_MS { now_ms } else { ended_ms }
    }

    /// Ends the claim in this way, and says how the job stands from now on.
    pub(super) fn over(
        &self,
        how: AttemptOutcome,
        at: Timestamp,
        error: Option<Box<str>>,
        state: JobState,
        due: Due,
    ) -> JobDecision {
        let mut record = self.record.clone();
        record.end(how, at, error);
        settle(&mut record, state, due, self.standing.now);
        self.tell(
            JobDecision {
                record: Some(record),
                deadline: DeadlineChange::Clear,
                ..answer(Ok(JobCommandResult::Nothing))
            },
            how,
        )
    }

    /// An attempt that had run out says after all what came of it. What was counted against the job is taken back.
    fn late(&self, ran_out: AttemptOutcome, how: AttemptOutcome, error: Option<Box<str>>) -> JobDecision {
        let mut record = self.record.clone();
        match ran_out {
            AttemptOutcome::Crashed => record.crash_count = record.crash_count.saturating_sub(1),
            AttemptOutcome::TimedOut => record.failure_count = record.failure_count.saturating_sub(1),
            _ => {}
        }
        if let Some(attempt) = record.trail.as_mut().and_then(|trail| trail.attempts.last_mut()) {
            attempt.outcome = how;
            attempt.ended = self.standing.now;
            attempt.error = error;
        }
        JobDecision { record: Some(record), ..answer(Ok(JobCommandResult::Nothing)) }
    }

    /// Adds the answer and the fact to a decision that ended an attempt.
    fn tell(&self, mut decision: JobDecision, how: AttemptOutcome) -> JobDecision {
        let record = decision.record.as_ref().unwrap_or(self.record);
        let late = matches!(how, AttemptOutcome::CompletedLate | AttemptOutcome::FailedLate);
        decision.reply = self.reported(record, late).reply;
        if let Some(attempt) = record.attempts().last() {
            decision.facts.push(EventData::JobAttemptEnded {
                token: attempt.token,
                owner: attempt.owner.clone(),
                outcome: how,
                state: record.state_at(self.standing.now),
                retry_in_ms: again_in_ms(record, self.standing.now),
            });
        }
        decision
    }

    fn reported(&self, record: &JobRecord, late: bool) -> JobDecision {
        let now = self.standing.now;
        let (state, again_in_ms) = (record.state_at(now), again_in_ms(record, now));
        answer(Ok(JobCommandResult::Reported(ReportedAttempt { state, retry_in_ms: again_in_ms, late })))
    }
}

fn again_in_ms(record: &JobRecord, now: Timestamp) -> Option<u64> {
    matches!(record.state, JobState::Queued | JobState::Scheduled).then(|| record.due.in_ms(now))
}

/// How long a crashed job stays away: its place in the spread.
fn crash_delay_ms(random: u64) -> u64 {
    random % (CRASH_SPREAD_MS + 1)
}

/// Counts a failure and says what follows from it.
fn count_failure(
    record: &mut JobRecord,
    instead: Option<JobState>,
    retry_in_ms: Option<u64>,
    for_good: bool,
    random: u64,
    now: Timestamp,
) {
    record.failure_count = record.failure_count.saturating_add(1);
    let (state, due) = if let Some(state) = instead {
        (state, Due::Now)
    } else if for_good || record.failure_count >= record.options.max_failures {
        (JobState::Failed, Due::Now)
    } else {
        let by_policy_ms = || record.options.retry.delay_ms(u32::from(record.failure_count), random);
        let delay_ms = retry_in_ms.unwrap_or_else(by_policy_ms);
        (JobState::Scheduled, Due::Store(now.store_ms.saturating_add(delay_ms)))
    };
    settle(record, state, due, now);
}

/// Says how a job stands from now on.
pub(super) fn settle(record: &mut JobRecord, state: JobState, due: Due, now: Timestamp) {
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
