//! Errors and problems: each kind of refusal is one kind of problem, and reads back as what it was.

use fencehold_core::job::JobId;
use fencehold_core::{BadInput, Key, Refusal, job};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ErrorKind, Problem};
use crate::quota::Limited;
use crate::{StoreError, closed};

/// How soon trying again makes sense where a bound of the store is reached, or the store is away.
const RETRY_AFTER_MS: u64 = 1_000;

/// The word for how something ended, as it stands in every record.
fn word(how: impl Serialize) -> Option<String> {
    serde_json::to_value(how).ok()?.as_str().map(str::to_owned)
}

fn of_word<T: DeserializeOwned>(how: Option<String>) -> Option<T> {
    serde_json::from_value(how?.into()).ok()
}

fn bad_input(bad: BadInput) -> Problem {
    let mut problem = Problem::new(ErrorKind::BadInput, bad.to_string());
    (problem.field, problem.message) = (Some(bad.field.into_owned()), Some(bad.message));
    problem
}

fn as_bad_input(problem: Problem) -> BadInput {
    let field = problem.field.unwrap_or_else(|| "request".to_owned()).into();
    BadInput { field, message: problem.message.unwrap_or(problem.detail) }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let kind = match &refusal {
            Refusal::Held { .. } => ErrorKind::Held,
            Refusal::HoldIdUsed { .. } => ErrorKind::HoldIdUsed,
            Refusal::Lost { .. } => ErrorKind::Lost,
            Refusal::WrongHoldId { .. } => ErrorKind::WrongHoldId,
            Refusal::NotHeld => ErrorKind::NotHeld,
            Refusal::NotExpired { .. } => ErrorKind::NotExpired,
            Refusal::PriorityTooLow { .. } => ErrorKind::PriorityTooLow,
            Refusal::StoreRewound { .. } => ErrorKind::StoreRewound,
            Refusal::TokensExhausted => ErrorKind::TokensExhausted,
            _ => ErrorKind::Unusable,
        };
        let mut problem = Problem::new(kind, refusal.to_string());
        match refusal {
            Refusal::Held { owner, task, remaining_ms: expires_in_ms, token } => {
                (problem.owner, problem.task) = (Some(owner), task);
                (problem.remaining_ms, problem.current_token) = (Some(expires_in_ms), Some(token));
            }
            Refusal::HoldIdUsed { token, outcome: how } => {
                (problem.token, problem.outcome) = (token, how.and_then(word));
            }
            Refusal::Lost { token, outcome: how, by, reason, current_token: current } => {
                (problem.token, problem.outcome) = (Some(token), how.and_then(word));
                (problem.by, problem.reason, problem.current_token) = (by, reason, Some(current));
            }
            Refusal::WrongHoldId { token } => problem.token = Some(token),
            Refusal::NotExpired { remaining_ms } => problem.remaining_ms = Some(remaining_ms),
            Refusal::PriorityTooLow { priority: held } => problem.priority = Some(held),
            Refusal::StoreRewound { token: shown, current_token: current } => {
                (problem.token, problem.current_token) = (Some(shown), Some(current));
            }
            _ => {}
        }
        problem
    }
}

/// A refusal of the lease rules, if the problem is one.
fn lease_refusal(problem: &Problem) -> Option<Refusal> {
    let Problem { token, outcome, current_token, remaining_ms, .. } = problem.clone();
    Some(match problem.kind {
        ErrorKind::Held => Refusal::Held {
            owner: problem.owner.clone()?,
            task: problem.task.clone(),
            remaining_ms: remaining_ms?,
            token: current_token?,
        },
        ErrorKind::HoldIdUsed => Refusal::HoldIdUsed { token, outcome: of_word(outcome) },
        ErrorKind::Lost => Refusal::Lost {
            token: token?,
            outcome: of_word(outcome),
            by: problem.by.clone(),
            reason: problem.reason.clone(),
            current_token: current_token?,
        },
        ErrorKind::WrongHoldId => Refusal::WrongHoldId { token: token? },
        ErrorKind::NotHeld => Refusal::NotHeld,
        ErrorKind::NotExpired => Refusal::NotExpired { remaining_ms: remaining_ms? },
        ErrorKind::PriorityTooLow => Refusal::PriorityTooLow { priority: problem.priority? },
        ErrorKind::StoreRewound => Refusal::StoreRewound { token: token?, current_token: current_token? },
        ErrorKind::TokensExhausted => Refusal::TokensExhausted,
        _ => return None,
    })
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        // Only a peer of another make sends what is no refusal here; the hold must then count as over.
        let (token, current) = (problem.token.unwrap_or_default(), problem.current_token.unwrap_or_default());
        lease_refusal(&problem).unwrap_or(Refusal::Lost {
            token,
            outcome: None,
            by: None,
            reason: None,
            current_token: current,
        })
    }
}

impl From<job::JobRefusal> for Problem {
    fn from(refusal: job::JobRefusal) -> Self {
        use job::JobRefusal as R;
        let kind = match &refusal {
            R::BadInput(_) => ErrorKind::BadInput,
            R::JobNotFound => ErrorKind::JobNotFound,
            R::Stale { .. } | R::Over { .. } | R::Finished { .. } => ErrorKind::Lost,
            R::WrongJob { .. } => ErrorKind::WrongJob,
            R::WrongHoldId { .. } => ErrorKind::WrongHoldId,
            R::StoreRewound { .. } => ErrorKind::StoreRewound,
            R::WrongState { .. } => ErrorKind::WrongState,
            R::JobRunning { .. } => ErrorKind::JobRunning,
            R::NotExpired { .. } => ErrorKind::NotExpired,
            R::PriorityTooLow { .. } => ErrorKind::PriorityTooLow,
            R::Conflict { .. } => ErrorKind::Conflict,
            R::QueueDraining { .. } => ErrorKind::QueueDraining,
            R::LimitReached { .. } => ErrorKind::LimitReached,
            R::TokensExhausted => ErrorKind::TokensExhausted,
            _ => ErrorKind::Unusable,
        };
        let mut problem = Problem::new(kind, refusal.to_string());
        match refusal {
            R::BadInput(bad) => return bad_input(bad),
            R::Stale { token, outcome: how, current_token: current } => {
                (problem.token, problem.outcome) = (Some(token), how.and_then(word));
                problem.current_token = Some(current);
            }
            R::Over { token, outcome: how } => (problem.token, problem.outcome) = (Some(token), word(how)),
            R::WrongJob { token, job_id: job } => (problem.token, problem.job_id) = (Some(token), job),
            R::WrongHoldId { token } => problem.token = Some(token),
            R::StoreRewound { token: shown, current_token: current } => {
                (problem.token, problem.current_token) = (Some(shown), Some(current));
            }
            R::Finished { state } => problem.state = Some(state),
            R::WrongState { state, message } => {
                (problem.state, problem.message) = (Some(state), Some(message));
            }
            R::JobRunning { owner, token, remaining_ms: expires_in_ms } => {
                (problem.owner, problem.current_token) = (Some(owner), Some(token));
                problem.remaining_ms = Some(expires_in_ms);
            }
            R::NotExpired { remaining_ms } => problem.remaining_ms = Some(remaining_ms),
            R::PriorityTooLow { priority: held } => problem.priority = Some(held),
            R::Conflict { field, job_id, differs } => {
                (problem.field, problem.job_id) = (Some(field), Some(job_id));
                problem.differs = Some(differs);
            }
            R::QueueDraining { queue } => problem.queue = Some(queue),
            R::LimitReached { message, limit } => limit_reached(&mut problem, message, limit),
            _ => {}
        }
        problem
    }
}

fn limit_reached(problem: &mut Problem, message: String, limit: u64) {
    problem.quota = Limited::named_in(&message).map(|limited| limited.quota().to_owned());
    (problem.message, problem.limit) = (Some(message), Some(limit));
    problem.retry_after_ms = Some(RETRY_AFTER_MS);
}

/// A refusal of the job rules, if the problem is one.
fn job_refusal(problem: &Problem) -> Option<job::JobRefusal> {
    use job::JobRefusal as R;
    let Problem { token, outcome, current_token, remaining_ms, state, field, message, .. } = problem.clone();
    Some(match problem.kind {
        ErrorKind::BadInput => R::BadInput(as_bad_input(problem.clone())),
        ErrorKind::JobNotFound => R::JobNotFound,
        ErrorKind::Lost => match (state, current_token) {
            (Some(state), _) => R::Finished { state },
            (None, Some(current_token)) => {
                R::Stale { token: token?, outcome: of_word(outcome), current_token }
            }
            (None, None) => R::Over { token: token?, outcome: of_word(outcome)? },
        },
        ErrorKind::WrongJob => R::WrongJob { token: token?, job_id: problem.job_id },
        ErrorKind::WrongHoldId => R::WrongHoldId { token: token? },
        ErrorKind::StoreRewound => R::StoreRewound { token: token?, current_token: current_token? },
        ErrorKind::WrongState => R::WrongState { state: state?, message: message? },
        ErrorKind::JobRunning => R::JobRunning {
            owner: problem.owner.clone()?,
            token: current_token?,
            remaining_ms: remaining_ms?,
        },
        ErrorKind::NotExpired => R::NotExpired { remaining_ms: remaining_ms? },
        ErrorKind::PriorityTooLow => R::PriorityTooLow { priority: problem.priority? },
        ErrorKind::Conflict => R::Conflict {
            field: field?,
            job_id: problem.job_id?,
            differs: problem.differs.clone().unwrap_or_else(|| "payload".to_owned()),
        },
        ErrorKind::QueueDraining => R::QueueDraining { queue: problem.queue.clone()? },
        ErrorKind::LimitReached => R::LimitReached { message: message?, limit: problem.limit? },
        ErrorKind::TokensExhausted => R::TokensExhausted,
        _ => return None,
    })
}

impl From<Problem> for job::JobRefusal {
    fn from(problem: Problem) -> Self {
        // Only a peer of another make sends what is no refusal here; its words are all there is.
        job_refusal(&problem)
            .unwrap_or_else(|| job::JobRefusal::BadInput(BadInput::new("item", problem.detail)))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let said = error.to_string();
        let of = |kind| Problem::new(kind, said.clone());
        match error {
            StoreError::BadInput(bad) => bad_input(bad),
            StoreError::Refused { key, refusal } => {
                let mut problem: Problem = refusal.into();
                (problem.detail, problem.key) = (said, Some(key));
                problem
            }
            StoreError::LimitReached { message, limit } => {
                let mut problem = of(ErrorKind::LimitReached);
                limit_reached(&mut problem, message, limit);
                problem
            }
            StoreError::QueueNotEmpty { queue, message } => {
                let mut problem = of(ErrorKind::QueueNotEmpty);
                (problem.queue, problem.message) = (Some(queue), Some(message));
                problem
            }
            StoreError::Unsupported { store, message } => {
                let mut problem = of(ErrorKind::Unsupported);
                (problem.store, problem.message) = (Some(store), Some(message));
                problem
            }
            StoreError::CursorTooOld { cursor, oldest_cursor } => {
                let mut problem = of(ErrorKind::CursorTooOld);
                (problem.cursor, problem.oldest_cursor) = (Some(cursor), Some(oldest_cursor));
                problem
            }
            StoreError::Unavailable { message } => {
                let mut problem = of(ErrorKind::Unavailable);
                let retry_after_ms = closed::left_ms(&message).unwrap_or(RETRY_AFTER_MS);
                (problem.message, problem.retry_after_ms) = (Some(message), Some(retry_after_ms));
                problem
            }
            StoreError::OutcomeUnknown { message } => with_message(of(ErrorKind::OutcomeUnknown), message),
            StoreError::Unauthorized { message } => with_message(of(ErrorKind::Unauthorized), message),
            StoreError::Forbidden { message } => {
                let detail = format!("{message}; ask an operator for an access token that allows it");
                with_message(Problem::new(ErrorKind::Forbidden, detail), message)
            }
            StoreError::Unusable { store, message } => {
                let problem = with_message(of(ErrorKind::Unusable), message);
                Problem { store: Some(store), ..problem }
            }
            StoreError::NoStore { store } => {
                let problem = with_message(of(ErrorKind::Unusable), "there is no store in it".to_owned());
                Problem { store: Some(store), ..problem }
            }
        }
    }
}

fn with_message(problem: Problem, message: String) -> Problem {
    Problem { message: Some(message), ..problem }
}

impl Problem {
    /// Why a job was not cancelled, retried or deleted. That it has finished is the wrong state for that, and no loss.
    pub(crate) fn of_change(job_id: JobId, refusal: job::JobRefusal) -> Self {
        let finished = match &refusal {
            job::JobRefusal::Finished { state } => Some(*state),
            _ => None,
        };
        let mut problem: Problem = match finished {
            Some(_) => Problem::new(ErrorKind::WrongState, refusal.to_string()),
            None => refusal.into(),
        };
        problem.state = problem.state.or(finished);
        problem.job_id = Some(job_id);
        problem
    }

    /// The refusal that it was made from.
    pub(crate) fn into_change_refusal(self) -> job::JobRefusal {
        match (self.kind, self.state, &self.message) {
            (ErrorKind::WrongState, Some(state), None) => job::JobRefusal::Finished { state },
            _ => self.into(),
        }
    }
}

/// What a problem that is a whole response means to the caller. `about` is the key that was asked about, where the
/// problem names none.
pub fn store_error(problem: Problem, about: Option<&Key>) -> StoreError {
    if let Some(refusal) = lease_refusal(&problem)
        && let Some(key) = problem.key.as_ref().or(about)
    {
        return StoreError::Refused { key: key.clone(), refusal };
    }
    let message = problem.message.clone().unwrap_or_else(|| problem.detail.clone());
    match problem.kind {
        ErrorKind::BadInput | ErrorKind::BodyTooLarge | ErrorKind::NotJson => {
            StoreError::BadInput(as_bad_input(problem))
        }
        ErrorKind::LimitReached => StoreError::LimitReached { message, limit: problem.limit.unwrap_or(0) },
        ErrorKind::QueueNotEmpty => {
            StoreError::QueueNotEmpty { queue: problem.queue.unwrap_or_default(), message }
        }
        ErrorKind::Unsupported => StoreError::Unsupported {
            store: problem.store.unwrap_or_else(|| "the server's store".to_owned()),
            message,
        },
        ErrorKind::CursorTooOld => StoreError::CursorTooOld {
            cursor: problem.cursor.unwrap_or(0),
            oldest_cursor: problem.oldest_cursor.unwrap_or(0),
        },
        ErrorKind::Unavailable | ErrorKind::Stopping | ErrorKind::RateLimited => {
            StoreError::Unavailable { message }
        }
        ErrorKind::OutcomeUnknown => StoreError::OutcomeUnknown { message },
        ErrorKind::Unauthorized => StoreError::Unauthorized { message },
        ErrorKind::Forbidden | ErrorKind::HostNotAllowed => StoreError::Forbidden { message },
        _ => {
            StoreError::Unusable { store: problem.store.unwrap_or_else(|| "the server".to_owned()), message }
        }
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::job::{AttemptOutcome, JobId, JobState, QueueName};
    use fencehold_core::lease::LeaseOutcome;
    use fencehold_core::{Owner, Reason, Task, Token};

    use super::*;

    fn through_json(problem: Problem) -> Problem {
        serde_json::from_str(&serde_json::to_string(&problem).unwrap()).unwrap()
    }

    fn token(value: u64) -> Token {
        Token::new(value)
    }

    #[test]
    fn every_refusal_of_a_lease_reads_back_as_what_it_was() {
        let owner = Owner::new("host/7").unwrap();
        let key = Key::new("reports/daily").unwrap();
        let mut refusals = vec![
            Refusal::Held { owner, task: Task::new("run-42").ok(), remaining_ms: 5, token: token(33) },
            Refusal::HoldIdUsed { token: None, outcome: None },
            Refusal::WrongHoldId { token: token(3) },
            Refusal::NotHeld,
            Refusal::NotExpired { remaining_ms: 9 },
            Refusal::PriorityTooLow { priority: -3 },
            Refusal::StoreRewound { token: token(9), current_token: token(3) },
            Refusal::TokensExhausted,
        ];
        for how in LeaseOutcome::ALL {
            refusals.push(Refusal::HoldIdUsed { token: Some(token(2)), outcome: Some(how) });
            let (by, reason) = (Some(Owner::new("ops@host").unwrap()), Some(Reason::new("stuck").unwrap()));
            refusals.push(Refusal::Lost {
                token: token(2),
                outcome: Some(how),
                by,
                reason,
                current_token: token(4),
            });
            let (by, reason) = (None, None);
            refusals.push(Refusal::Lost {
                token: token(2),
                outcome: Some(how),
                by,
                reason,
                current_token: token(4),
            });
        }
        for refusal in refusals {
            let back: Refusal = through_json(refusal.clone().into()).into();
            assert_eq!(back, refusal);
            let error = StoreError::Refused { key: key.clone(), refusal };
            assert_eq!(store_error(through_json(error.clone().into()), None), error);
        }
    }

    #[test]
    fn every_refusal_of_a_job_reads_back_as_what_it_was() {
        use job::JobRefusal as R;
        let id = JobId::from_random(7, [3; 10]);
        let owner = Owner::new("host/7").unwrap();
        for refusal in [
            R::BadInput(BadInput::new("payload", "is not JSON")),
            R::JobNotFound,
            R::Stale { token: token(2), outcome: Some(AttemptOutcome::Crashed), current_token: token(3) },
            R::Stale { token: token(2), outcome: None, current_token: token(3) },
            R::Over { token: token(2), outcome: AttemptOutcome::CompletedLate },
            R::WrongJob { token: token(2), job_id: Some(id) },
            R::WrongJob { token: token(2), job_id: None },
            R::WrongHoldId { token: token(2) },
            R::StoreRewound { token: token(9), current_token: token(3) },
            R::Finished { state: JobState::Cancelled },
            R::WrongState { state: JobState::Running, message: "cancel it first".to_owned() },
            R::JobRunning { owner, token: token(4), remaining_ms: 70 },
            R::NotExpired { remaining_ms: 9 },
            R::PriorityTooLow { priority: 3 },
            R::Conflict { field: "unique_key".to_owned(), job_id: id, differs: "kind".to_owned() },
            R::QueueDraining { queue: QueueName::new("emails").unwrap() },
            R::LimitReached { message: "jobs".to_owned(), limit: 5 },
            R::TokensExhausted,
        ] {
            let back: R = through_json(refusal.clone().into()).into();
            assert_eq!(back, refusal);
            let back = through_json(Problem::of_change(id, refusal.clone())).into_change_refusal();
            let of_its_own = matches!(refusal, R::WrongJob { .. } | R::Conflict { .. });
            assert!(back == refusal || of_its_own, "{back:?} is {refusal:?}");
        }
    }

    #[test]
    fn every_other_error_reads_back_as_what_it_was() {
        let text = || "some text".to_owned();
        for error in [
            StoreError::BadInput(BadInput::new("ttl", "is 5 ms; the least is 100 ms")),
            StoreError::LimitReached { message: text(), limit: 7 },
            StoreError::QueueNotEmpty { queue: QueueName::new("emails").unwrap(), message: text() },
            StoreError::Unsupported { store: "etcd:".to_owned(), message: text() },
            StoreError::CursorTooOld { cursor: 1, oldest_cursor: 5 },
            StoreError::Unavailable { message: text() },
            StoreError::OutcomeUnknown { message: text() },
            StoreError::Unauthorized { message: text() },
            StoreError::Forbidden { message: text() },
            StoreError::Unusable { store: "file:x".to_owned(), message: text() },
        ] {
            assert_eq!(store_error(through_json(error.clone().into()), None), error);
        }
    }
}
