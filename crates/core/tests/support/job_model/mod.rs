//! The promises of a job once more, told another way: its whole story with nothing forgotten. It hears every command
//! and its answer, and objects to an answer that breaks a promise. It shares no code with the rules.

mod caller;
mod force;

use fencehold_core::Token;
use fencehold_core::job::{
    AttemptOutcome, AttemptProof, AttemptWrite, JobCommand, JobCommandResult, JobOptions, JobRefusal,
    JobState, ReportedAttempt,
};
use fencehold_core::limits::{CRASH_NOTICED_MS, TOKEN_MAX};

use self::caller::Caller;
use crate::support::job::{OneJob, RETRY_MS};
use crate::support::owner;

type Reply = Result<JobCommandResult, JobRefusal>;

/// One attempt and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct AttemptLife {
    /// The number of its hold id.
    pub(crate) id: u8,
    pub(crate) token: Token,
    ttl_ms: u64,
    since_ms: u64,
    /// Until when the holder may believe that it holds.
    deadline_ms: u64,
    /// By when it should yield, and to which priority.
    yield_at: Option<(u64, i16)>,
    /// The job was called off under it.
    cancel: bool,
    /// How it ended, once that was noted.
    end: Option<AttemptOutcome>,
}

/// The whole story of one job.
#[derive(Debug)]
pub(crate) struct JobModel {
    terms: JobOptions,
    pub(crate) lives: Vec<AttemptLife>,
    pub(crate) state: JobState,
    /// When it is ready, while it is scheduled.
    due_ms: Option<u64>,
    failures: u16,
    crashes: u16,
    /// The newest token of this job.
    pub(crate) token: Token,
    /// The newest token of the store.
    pub(crate) newest: Token,
    pub(crate) now_ms: u64,
}

fn ran_out(how: AttemptOutcome) -> bool {
    matches!(how, AttemptOutcome::Crashed | AttemptOutcome::TimedOut | AttemptOutcome::Yielded)
}

fn fails(how: AttemptOutcome) -> bool {
    matches!(how, AttemptOutcome::Failed | AttemptOutcome::FailedLate | AttemptOutcome::TimedOut)
}

impl JobModel {
    pub(crate) fn new(terms: JobOptions, newest: Token, now_ms: u64) -> Self {
        JobModel {
            terms,
            lives: Vec::new(),
            state: JobState::Queued,
            due_ms: None,
            failures: 0,
            crashes: 0,
            token: Token::NONE,
            newest,
            now_ms,
        }
    }

    /// Hears one command and its answer.
    pub(crate) fn hear(&mut self, command: &JobCommand, reply: &Reply) {
        self.wake();
        match command {
            JobCommand::Claim { ttl_ms, .. } => self.claim(*ttl_ms, reply),
            JobCommand::Renew(by) => self.renew(*by, reply),
            JobCommand::Complete(by) => self.complete(*by, reply),
            JobCommand::Fail { by, retry_in_ms, for_good, .. } => {
                self.fail(*by, retry_in_ms.unwrap_or(RETRY_MS), *for_good, reply);
            }
            JobCommand::Snooze { by, for_ms } => {
                let due_ms = Some(self.now_ms + for_ms);
                self.put_back(*by, AttemptOutcome::Snoozed, JobState::Scheduled, due_ms, reply);
            }
            JobCommand::HandBack(by) => {
                self.put_back(*by, AttemptOutcome::Released, JobState::Queued, None, reply);
            }
            JobCommand::StopAtIntent { by, .. } => {
                self.put_back(*by, AttemptOutcome::InDoubt, JobState::InDoubt, None, reply);
            }
            JobCommand::Abandon(by) => {
                if matches!(self.caller(*by), Caller::Live) {
                    self.end(AttemptOutcome::Abandoned, JobState::Queued, None);
                } else {
                    assert_eq!(*reply, Ok(JobCommandResult::Nothing));
                }
            }
            JobCommand::Write { by, what } => self.write(*by, *what, reply),
            JobCommand::Expire { random } => {
                let spread_ms = self.held().map_or(0, |life| life.ttl_ms.min(5_000));
                self.expire(random % (spread_ms + 1), reply);
            }
            JobCommand::Cancel { now, .. } => self.cancel(*now, reply),
            JobCommand::EndByForce { state, .. } => self.end_by_force((*state).into(), reply),
            JobCommand::Retry { .. } => self.retry(reply),
            JobCommand::Delete { force } => self.delete(*force, reply),
            JobCommand::Preempt(ask) => self.preempt(ask, reply),
            JobCommand::Withdraw => {
                assert_eq!(*reply, Ok(JobCommandResult::Nothing));
                if self.live().is_some() {
                    self.last().yield_at = None;
                }
            }
            JobCommand::Advance => {
                assert_eq!(*reply, Ok(JobCommandResult::Nothing));
                if self.held().is_some() {
                    self.end(AttemptOutcome::Advanced, JobState::Queued, None);
                    self.token = self.newest;
                } else if self.may_be_late() {
                    self.token = self.newest;
                }
            }
            other => panic!("a new command wants its promise here: {other:?}"),
        }
        self.wake();
    }

    /// What the store keeps must tell the same story.
    pub(crate) fn compare(&self, job: &OneJob) {
        assert_eq!(job.state(), self.state, "state");
        assert_eq!(job.record.token, self.token, "token");
        assert_eq!(job.counts(), (self.failures, self.crashes), "failures and crashes");
        assert_eq!(job.deadline_ms, self.held().map(|life| life.deadline_ms), "until when");
        let due_in_ms = self.due_ms.map_or(0, |due_ms| due_ms.saturating_sub(self.now_ms));
        assert_eq!(job.record.due.in_ms(job.now), due_in_ms, "when it is ready");
        assert_eq!(job.record.attempt_count() as usize, self.lives.len(), "how many attempts");
        let kept: Vec<_> = job.record.attempts().iter().map(|life| (life.token, life.outcome)).collect();
        let ended = self.recent_lives().iter();
        let ended: Vec<_> = ended.map(|life| (life.token, life.end.expect("it has ended"))).collect();
        assert_eq!(kept, ended, "every end is on record");
    }

    /// A job whose time has come is ready, whether or not anybody has noticed.
    pub(crate) fn wake(&mut self) {
        if self.state == JobState::Scheduled && self.due_ms.is_some_and(|due_ms| due_ms <= self.now_ms) {
            (self.state, self.due_ms) = (JobState::Queued, None);
        }
    }

    fn claim(&mut self, ttl_ms: u64, reply: &Reply) {
        if let Some(life) = self.live() {
            let expires_in_ms = life.deadline_ms - self.now_ms;
            let running = JobRefusal::JobRunning {
                owner: owner("worker"),
                token: life.token,
                remaining_ms: expires_in_ms,
            };
            return assert_eq!(*reply, Err(running));
        }
        let Ok(JobCommandResult::Claimed { token, remaining_ms, attempt }) = reply else {
            let used_up = self.newest.get() >= TOKEN_MAX - 1;
            match reply {
                Err(JobRefusal::WrongState { state, .. }) => {
                    assert_eq!(*state, self.state);
                    assert_ne!(self.state, JobState::Queued);
                }
                other => assert!(used_up && *other == Err(JobRefusal::TokensExhausted), "{other:?}"),
            }
            return;
        };
        assert_eq!(self.state, JobState::Queued, "only what is ready is given away");
        assert!(self.lives.iter().all(|life| life.end.is_some()), "two holders");
        assert!(*token > self.newest && token.get() < TOKEN_MAX, "{token} did not grow, or is the last");
        let limit_ms = self
            .terms
            .attempt_timeout_ms
            .map_or(u64::MAX, |limit_ms| u64::from(limit_ms.get()));
        assert_eq!(*remaining_ms, ttl_ms.min(limit_ms));
        assert_eq!(*attempt as usize, self.lives.len() + 1);
        (self.token, self.newest, self.state) = (*token, *token, JobState::Running);
        let deadline_ms = self.now_ms + remaining_ms;
        let since_ms = self.now_ms;
        let id = u8::try_from(self.lives.len()).expect("fewer attempts than hold ids");
        self.lives.push(AttemptLife {
            id,
            token: *token,
            ttl_ms,
            since_ms,
            deadline_ms,
            yield_at: None,
            cancel: false,
            end: None,
        });
    }

    fn renew(&mut self, by: AttemptProof, reply: &Reply) {
        match self.caller(by) {
            Caller::Refused(refusal) => assert_eq!(*reply, Err(refusal)),
            Caller::RanOut(how) => {
                assert_eq!(*reply, Err(JobRefusal::Over { token: by.token, outcome: how }));
            }
            Caller::Over(how) if ran_out(how) => {
                assert_eq!(*reply, Err(JobRefusal::Over { token: by.token, outcome: how }));
            }
            Caller::Over(how) => assert_eq!(*reply, Err(self.refused(by, how))),
            Caller::Live => {
                let now_ms = self.now_ms;
                let limit_ms = self
                    .terms
                    .attempt_timeout_ms
                    .map_or(u64::MAX, |limit_ms| u64::from(limit_ms.get()));
                let life = self.last();
                let yield_at_ms = life.yield_at.map_or(u64::MAX, |(at_ms, _)| at_ms);
                let earned_ms = (now_ms + life.ttl_ms)
                    .min(life.since_ms.saturating_add(limit_ms))
                    .min(yield_at_ms);
                life.deadline_ms = life.deadline_ms.max(earned_ms);
                let Ok(JobCommandResult::Renewed(renewal)) = reply else {
                    panic!("a live holder lost it: {reply:?}")
                };
                assert_eq!((renewal.token, renewal.remaining_ms), (by.token, life.deadline_ms - now_ms));
                assert_eq!(renewal.cancel_requested, life.cancel);
                assert_eq!(
                    renewal.yield_request.as_ref().map(|notice| notice.priority),
                    life.yield_at.map(|asked| asked.1)
                );
            }
        }
    }

    fn complete(&mut self, by: AttemptProof, reply: &Reply) {
        match self.caller(by) {
            Caller::Refused(refusal) => return assert_eq!(*reply, Err(refusal)),
            Caller::Live => self.end(AttemptOutcome::Completed, JobState::Completed, None),
            Caller::RanOut(_) => self.end(AttemptOutcome::CompletedLate, JobState::Completed, None),
            Caller::Over(AttemptOutcome::Completed | AttemptOutcome::CompletedLate) => {}
            Caller::Over(_) if self.may_be_late() => {
                self.correct(AttemptOutcome::CompletedLate, JobState::Completed, None);
            }
            Caller::Over(how) => return assert_eq!(*reply, Err(self.refused(by, how))),
        }
        self.told(reply);
    }

    fn fail(&mut self, by: AttemptProof, delay_ms: u64, for_good: bool, reply: &Reply) {
        let again = (JobState::Scheduled, Some(self.now_ms + delay_ms));
        let (state, due_ms) = if for_good { (JobState::Failed, None) } else { again };
        match self.caller(by) {
            Caller::Refused(JobRefusal::Stale {
                outcome: Some(how @ (AttemptOutcome::Failed | AttemptOutcome::FailedLate)),
                ..
            }) => {
                return self.told_again(how, reply);
            }
            Caller::Refused(refusal) => return assert_eq!(*reply, Err(refusal)),
            Caller::Live => self.end(AttemptOutcome::Failed, state, due_ms),
            Caller::RanOut(_) => self.end(AttemptOutcome::FailedLate, state, due_ms),
            Caller::Over(AttemptOutcome::Failed | AttemptOutcome::FailedLate) => {}
            Caller::Over(_) if self.may_be_late() => self.correct(AttemptOutcome::FailedLate, state, due_ms),
            Caller::Over(how) => return assert_eq!(*reply, Err(self.refused(by, how))),
        }
        self.told(reply);
    }

    fn put_back(
        &mut self,
        by: AttemptProof,
        how: AttemptOutcome,
        state: JobState,
        due_ms: Option<u64>,
        reply: &Reply,
    ) {
        match self.caller(by) {
            Caller::Refused(JobRefusal::Stale { outcome: Some(was), .. }) if was == how => {
                return self.told_again(how, reply);
            }
            Caller::Refused(refusal) => return assert_eq!(*reply, Err(refusal)),
            Caller::RanOut(how) => {
                return assert_eq!(*reply, Err(JobRefusal::Over { token: by.token, outcome: how }));
            }
            Caller::Live => self.end(how, state, due_ms),
            Caller::Over(was) if was == how => {}
            Caller::Over(was) => return assert_eq!(*reply, Err(self.refused(by, was))),
        }
        self.told(reply);
    }

    fn write(&self, by: AttemptProof, what: AttemptWrite, reply: &Reply) {
        let also_late = matches!(what, AttemptWrite::Checkpoint | AttemptWrite::Outcome);
        let expected = match self.caller(by) {
            Caller::Refused(refusal) => Err(refusal),
            Caller::Live => Ok(JobCommandResult::MayWrite),
            Caller::RanOut(_) if also_late => Ok(JobCommandResult::MayWrite),
            Caller::RanOut(how) => Err(JobRefusal::Over { token: by.token, outcome: how }),
            Caller::Over(_) if also_late && self.may_be_late() => Ok(JobCommandResult::MayWrite),
            Caller::Over(how) => Err(self.refused(by, how)),
        };
        assert_eq!(*reply, expected);
    }

    fn expire(&mut self, spread_ms: u64, reply: &Reply) {
        let Some(life) = self.held() else { return assert_eq!(*reply, Ok(JobCommandResult::Nothing)) };
        if let Some(life) = self.live() {
            let remaining_ms = life.deadline_ms - self.now_ms;
            return assert_eq!(*reply, Err(JobRefusal::NotExpired { remaining_ms }));
        }
        let how = self.how_time_ran_out(life);
        assert_eq!(*reply, Ok(JobCommandResult::Expired { how }));
        self.run_out(how, spread_ms);
    }

    fn run_out(&mut self, how: AttemptOutcome, spread_ms: u64) {
        let ended_ms = self.held().map_or(self.now_ms, |life| life.deadline_ms);
        let in_an_outage = self.now_ms.saturating_sub(ended_ms) > CRASH_NOTICED_MS;
        let spread_from_ms = if in_an_outage { self.now_ms } else { ended_ms };
        match how {
            AttemptOutcome::TimedOut => self.end(how, JobState::Scheduled, Some(self.now_ms + RETRY_MS)),
            AttemptOutcome::Crashed => self.end(how, JobState::Scheduled, Some(spread_from_ms + spread_ms)),
            _ => self.end(how, JobState::Queued, None),
        }
    }

    /// Ends the attempt, counts what it counts, and says how the job stands: as was said, unless it was called off or
    /// has reached a limit.
    fn end(&mut self, how: AttemptOutcome, state: JobState, due_ms: Option<u64>) {
        self.last().end = Some(how);
        let called_off = self.last().cancel && state != JobState::Completed;
        self.count(how);
        self.settle(how, if called_off { JobState::Cancelled } else { state }, due_ms);
    }

    /// The last holder says after all what came of its attempt.
    fn correct(&mut self, how: AttemptOutcome, state: JobState, due_ms: Option<u64>) {
        let was = self.last().end.replace(how).expect("it has ended");
        self.failures -= u16::from(fails(was));
        self.crashes -= u16::from(was == AttemptOutcome::Crashed);
        self.count(how);
        self.settle(how, state, due_ms);
    }

    fn count(&mut self, how: AttemptOutcome) {
        self.failures += u16::from(fails(how));
        self.crashes += u16::from(how == AttemptOutcome::Crashed);
    }

    fn settle(&mut self, how: AttemptOutcome, state: JobState, due_ms: Option<u64>) {
        self.state = match state {
            JobState::Scheduled if fails(how) && self.failures >= self.terms.max_failures => JobState::Failed,
            JobState::Scheduled
                if how == AttemptOutcome::Crashed && self.crashes >= self.terms.max_crashes =>
            {
                JobState::Quarantined
            }
            state => state,
        };
        self.due_ms = due_ms.filter(|_| self.state == JobState::Scheduled);
    }

    fn told(&mut self, reply: &Reply) {
        let how = self.last().end.expect("an attempt that ended");
        self.told_again(how, reply);
    }

    /// An attempt that ended so said so before: it hears how the job stands now.
    fn told_again(&mut self, how: AttemptOutcome, reply: &Reply) {
        self.wake();
        let late = matches!(how, AttemptOutcome::CompletedLate | AttemptOutcome::FailedLate);
        let waits_ms = self.due_ms.map_or(0, |due_ms| due_ms - self.now_ms);
        let again_in_ms = matches!(self.state, JobState::Queued | JobState::Scheduled).then_some(waits_ms);
        assert_eq!(
            *reply,
            Ok(JobCommandResult::Reported(ReportedAttempt {
                state: self.state,
                retry_in_ms: again_in_ms,
                late
            }))
        );
    }

    /// The attempt whose end is not noted yet.
    pub(crate) fn held(&self) -> Option<&AttemptLife> {
        self.lives.last().filter(|life| life.end.is_none())
    }
}
