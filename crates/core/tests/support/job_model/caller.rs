//! Who speaks, and what the model remembers of them.

use fencehold_core::job::{AttemptOutcome, AttemptProof, JobRefusal, JobState};
use fencehold_core::limits::TRAIL_MAX;

use super::{AttemptLife, JobModel, ran_out};
use crate::support::hold;

/// Who speaks.
pub(super) enum Caller {
    /// No one who may.
    Refused(JobRefusal),
    /// The holder.
    Live,
    /// The last holder: its claim has run out, unnoted.
    RanOut(AttemptOutcome),
    /// The last holder: its attempt is over.
    Over(AttemptOutcome),
}

impl JobModel {
    pub(super) fn caller(&self, by: AttemptProof) -> Caller {
        let (token, current) = (by.token, self.token);
        if token > self.newest {
            return Caller::Refused(JobRefusal::StoreRewound { token, current_token: self.newest });
        }
        let oldest = self.recent_lives().first().map(|life| life.token);
        let forgotten = self.lives.iter().filter(|life| life.end.is_some()).count() > TRAIL_MAX;
        if forgotten && oldest.is_some_and(|oldest| token < oldest) {
            return Caller::Refused(JobRefusal::Stale { token, outcome: None, current_token: current });
        }
        let Some(life) = self.lives.iter().find(|life| life.token == token) else {
            return Caller::Refused(JobRefusal::WrongJob { token, job_id: None });
        };
        if hold(life.id) != by.hash {
            return Caller::Refused(JobRefusal::WrongHoldId { token });
        }
        match life.end {
            Some(_) if token != current => {
                Caller::Refused(JobRefusal::Stale { token, outcome: life.end, current_token: current })
            }
            Some(how) => Caller::Over(how),
            None if self.now_ms < life.deadline_ms => Caller::Live,
            None => Caller::RanOut(self.how_time_ran_out(life)),
        }
    }

    /// Why the last holder's word does not count any more.
    pub(super) fn refused(&self, by: AttemptProof, how: AttemptOutcome) -> JobRefusal {
        match self.state {
            state @ (JobState::Completed | JobState::Failed | JobState::Cancelled) => {
                JobRefusal::Finished { state }
            }
            _ => JobRefusal::Over { token: by.token, outcome: how },
        }
    }

    /// Whether the last holder may still say what came of its attempt although it ran out.
    pub(super) fn may_be_late(&self) -> bool {
        let undecided = matches!(self.state, JobState::Queued | JobState::Scheduled | JobState::Quarantined);
        let last = self.lives.last().filter(|life| life.token == self.token);
        undecided && last.and_then(|life| life.end).is_some_and(ran_out)
    }

    pub(super) fn how_time_ran_out(&self, life: &AttemptLife) -> AttemptOutcome {
        let limit_ms = self
            .terms
            .attempt_timeout_ms
            .map_or(u64::MAX, |limit_ms| u64::from(limit_ms.get()));
        if life.deadline_ms >= life.since_ms.saturating_add(limit_ms) {
            AttemptOutcome::TimedOut
        } else if life.yield_at.is_some_and(|(at_ms, _)| at_ms <= life.deadline_ms) {
            AttemptOutcome::Yielded
        } else {
            AttemptOutcome::Crashed
        }
    }

    pub(super) fn live(&self) -> Option<&AttemptLife> {
        self.held().filter(|life| self.now_ms < life.deadline_ms)
    }

    pub(super) fn last(&mut self) -> &mut AttemptLife {
        self.lives.last_mut().expect("it was claimed")
    }

    /// The ended attempts that a record still shows.
    pub(super) fn recent_lives(&self) -> &[AttemptLife] {
        let ended = self.lives.len() - usize::from(self.held().is_some());
        &self.lives[ended.saturating_sub(TRAIL_MAX)..ended]
    }
}
