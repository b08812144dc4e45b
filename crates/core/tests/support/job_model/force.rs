//! What others do about the job.

use fencehold_core::Token;
use fencehold_core::job::{AttemptOutcome, JobCommandResult, JobRefusal, JobState};
use fencehold_core::lease::PreemptRequest;

use super::{JobModel, Reply};
use crate::support::owner;

impl JobModel {
    pub(super) fn cancel(&mut self, now: bool, reply: &Reply) {
        match (self.state, self.held().cloned()) {
            (JobState::Cancelled, _) => {}
            (state @ (JobState::Completed | JobState::Failed), _) => {
                return assert_eq!(*reply, Err(JobRefusal::Finished { state }));
            }
            (_, Some(_)) if now => {
                self.end(AttemptOutcome::Revoked, JobState::Cancelled, None);
                self.token = Token::new(self.newest.get() + 1);
                self.newest = self.token;
            }
            (_, Some(life)) => {
                self.last().cancel = true;
                if self.now_ms >= life.deadline_ms {
                    self.run_out(self.how_time_ran_out(&life), 0);
                }
            }
            (_, None) => (self.state, self.due_ms) = (JobState::Cancelled, None),
        }
        assert_eq!(*reply, Ok(JobCommandResult::Cancelled { state: self.state }));
    }

    pub(super) fn end_by_force(&mut self, state: JobState, reply: &Reply) {
        let is_done = match self.state {
            JobState::Completed => true,
            JobState::Failed | JobState::Cancelled => state == JobState::Failed,
            _ => false,
        };
        if is_done {
            return assert_eq!(*reply, Err(JobRefusal::Finished { state: self.state }));
        }
        assert_eq!(*reply, Ok(JobCommandResult::EndedByForce { state }));
        if self.held().is_some() {
            self.last().end = Some(AttemptOutcome::Revoked);
        }
        self.token = Token::new(self.newest.get() + 1);
        self.newest = self.token;
        (self.state, self.due_ms) = (state, None);
    }

    pub(super) fn retry(&mut self, reply: &Reply) {
        match self.state {
            JobState::Running => {
                return assert!(matches!(
                    reply,
                    Err(JobRefusal::WrongState { state: JobState::Running, .. })
                ));
            }
            state @ JobState::Completed => return assert_eq!(*reply, Err(JobRefusal::Finished { state })),
            _ => {}
        }
        assert_eq!(*reply, Ok(JobCommandResult::Retried));
        let nothing_to_do = (self.failures, self.crashes) == (0, 0) && !self.may_be_late();
        if self.state == JobState::Queued && nothing_to_do {
            return;
        }
        self.token = Token::new(self.newest.get() + 1);
        self.newest = self.token;
        (self.state, self.due_ms, self.failures, self.crashes) = (JobState::Queued, None, 0, 0);
    }

    pub(super) fn delete(&self, force: bool, reply: &Reply) {
        let expected = match self.live().filter(|_| !force) {
            None => Ok(JobCommandResult::Deleted),
            Some(life) => Err(JobRefusal::JobRunning {
                owner: owner("worker"),
                token: life.token,
                remaining_ms: life.deadline_ms - self.now_ms,
            }),
        };
        assert_eq!(*reply, expected);
    }

    pub(super) fn preempt(&mut self, ask: &PreemptRequest, reply: &Reply) {
        let held = self.terms.priority;
        let Some(life) = self.live() else {
            return assert!(matches!(reply, Err(JobRefusal::WrongState { .. })), "{reply:?}");
        };
        if ask.priority <= held {
            return assert_eq!(*reply, Err(JobRefusal::PriorityTooLow { priority: held }));
        }
        assert_eq!(*reply, Ok(JobCommandResult::Nothing));
        let at_ms = self.now_ms + ask.yield_in_ms;
        let stands = match life.yield_at {
            Some(standing) if standing.1 >= ask.priority => standing,
            Some(standing) => (standing.0.min(at_ms), ask.priority),
            None => (at_ms, ask.priority),
        };
        self.last().yield_at = Some(stands);
    }
}
