//! Who speaks, and what the model remembers of them.

use fencehold_core::job::{AttemptOutcome, By, JobState, Refusal};
use fencehold_core::limits::TRAIL_MAX;

use super::{Life, Model, ran_out};
use crate::support::hold;

/// Who speaks.
pub(super) enum Voice {
    /// No one who may.
    Refused(Refusal),
    /// The holder.
    Live,
    /// The last holder: its claim has run out, unnoted.
    RanOut(AttemptOutcome),
    /// The last holder: its attempt is over.
    Over(AttemptOutcome),
}

impl Model {
    pub(super) fn voice(&self, by: By) -> Voice {
        let (token, current) = (by.token, self.token);
        if token > self.newest {
            return Voice::Refused(Refusal::StoreRewound { token, current_token: self.newest });
        }
        let oldest = self.remembered().first().map(|life| life.token);
        let forgotten = self.lives.iter().filter(|life| life.end.is_some()).count() > TRAIL_MAX;
        if forgotten && oldest.is_some_and(|oldest| token < oldest) {
            return Voice::Refused(Refusal::Stale { token, outcome: None, current_token: current });
        }
        let Some(life) = self.lives.iter().find(|life| life.token == token) else {
            return Voice::Refused(Refusal::WrongJob { token, job_id: None });
        };
        if hold(life.id) != by.hash {
            return Voice::Refused(Refusal::WrongHoldId { token });
        }
        match life.end {
            Some(_) if token != current => {
                Voice::Refused(Refusal::Stale { token, outcome: life.end, current_token: current })
            }
            Some(how) => Voice::Over(how),
            None if self.now_ms < life.deadline_ms => Voice::Live,
            None => Voice::RanOut(self.how_time_ran_out(life)),
        }
    }

    /// Why the last holder's word does not count any more.
    pub(super) fn refused(&self, by: By, how: AttemptOutcome) -> Refusal {
        match self.state {
            state @ (JobState::Completed | JobState::Failed | JobState::Cancelled) => {
                Refusal::Finished { state }
            }
            _ => Refusal::Over { token: by.token, outcome: how },
        }
    }

    /// Whether the last holder may still say what came of its attempt although it ran out.
    pub(super) fn may_be_late(&self) -> bool {
        let undecided = matches!(self.state, JobState::Queued | JobState::Scheduled | JobState::Quarantined);
        let last = self.lives.last().filter(|life| life.token == self.token);
        undecided && last.and_then(|life| life.end).is_some_and(ran_out)
    }

    pub(super) fn how_time_ran_out(&self, life: &Life) -> AttemptOutcome {
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

    pub(super) fn live(&self) -> Option<&Life> {
        self.held().filter(|life| self.now_ms < life.deadline_ms)
    }

    pub(super) fn last(&mut self) -> &mut Life {
        self.lives.last_mut().expect("it was claimed")
    }

    /// The ended attempts that a record still shows.
    pub(super) fn remembered(&self) -> &[Life] {
        let ended = self.lives.len() - usize::from(self.held().is_some());
        &self.lives[ended.saturating_sub(TRAIL_MAX)..ended]
    }
}
