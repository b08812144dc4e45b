//! Errors and problems: each kind of refusal is one kind of problem, and reads back as what it was.

use fencehold_core::{BadInput, Key, Refusal, job};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ErrorKind, Problem};
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
    (problem.what, problem.why) = (Some(bad.field.into_owned()), Some(bad.message));
    problem
}

fn as_bad_input(problem: Problem) -> BadInput {
    let field = problem.what.unwrap_or_else(|| "request".to_owned()).into();
    BadInput { field, message: problem.why.unwrap_or(problem.detail) }
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
                (problem.expires_in_ms, problem.current_token) = (Some(expires_in_ms), Some(token));
            }
            Refusal::HoldIdUsed { token, outcome: how } => {
                (problem.token, problem.how) = (token, how.and_then(word))
            }
            Refusal::Lost { token, outcome: how, by, reason, current_token: current } => {
                (problem.token, problem.how) = (Some(token), how.and_then(word));
                (problem.by, problem.reason, problem.current_token) = (by, reason, Some(current));
            }
            Refusal::WrongHoldId { token } => problem.token = Some(token),
            Refusal::NotExpired { remaining_ms } => problem.expires_in_ms = Some(remaining_ms),
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
    let Problem { token, how, current_token, expires_in_ms, .. } = problem.clone();
    Some(match problem.kind {
        ErrorKind::Held => Refusal::Held {
            owner: problem.owner.clone()?,
            task: problem.task.clone(),
            remaining_ms: expires_in_ms?,
            token: current_token?,
        },
        ErrorKind::HoldIdUsed => Refusal::HoldIdUsed { token, outcome: of_word(how) },
        ErrorKind::Lost => Refusal::Lost {
            token: token?,
            outcome: of_word(how),
            by: problem.by.clone(),
            reason: problem.reason.clone(),
            current_token: current_token?,
        },
        ErrorKind::WrongHoldId => Refusal::WrongHoldId { token: token? },
        ErrorKind::NotHeld => Refusal::NotHeld,
        ErrorKind::NotExpired => Refusal::NotExpired { remaining_ms: expires_in_ms? },
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

impl From<job::Refusal> for Problem {
    fn from(refusal: job::Refusal) -> Self {
        use job::Refusal as R;
        let kind = match &refusal {
            R::BadInput(_) => ErrorKind::BadInput,
            R::JobNotFound => ErrorKind::JobNotFound,
            R::Stale { .. } => ErrorKind::Stale,
            R::Over { .. } => ErrorKind::Over,
            R::WrongJob { .. } => ErrorKind::WrongJob,
            R::WrongHoldId { .. } => ErrorKind::WrongHoldId,
            R::StoreRewound { .. } => ErrorKind::StoreRewound,
            R::Finished { .. } => ErrorKind::Finished,
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
                (problem.token, problem.how) = (Some(token), how.and_then(word));
                problem.current_token = Some(current);
            }
            R::Over { token, outcome: how } => (problem.token, problem.how) = (Some(token), word(how)),
            R::WrongJob { token, job_id: job } => (problem.token, problem.job) = (Some(token), job),
            R::WrongHoldId { token } => problem.token = Some(token),
            R::StoreRewound { token: shown, current_token: current } => {
                (problem.token, problem.current_token) = (Some(shown), Some(current));
            }
            R::Finished { state } => problem.state = Some(state),
            R::WrongState { state, message: why } => (problem.state, problem.why) = (Some(state), Some(why)),
            R::JobRunning { owner, token, remaining_ms: expires_in_ms } => {
                (problem.owner, problem.current_token) = (Some(owner), Some(token));
                problem.expires_in_ms = Some(expires_in_ms);
            }
            R::NotExpired { remaining_ms } => problem.expires_in_ms = Some(remaining_ms),
            R::PriorityTooLow { priority: held } => problem.priority = Some(held),
            R::Conflict { field: what, job_id: first, differs } => {
                (problem.what, problem.job) = (Some(what), Some(first));
                problem.why = Some(differs);
            }
            R::QueueDraining { queue } => problem.queue = Some(queue),
            R::LimitReached { message: what, limit } => full(&mut problem, what, limit),
            _ => {}
        }
        problem
    }
}

fn full(problem: &mut Problem, what: String, limit: u64) {
    (problem.what, problem.limit) = (Some(what), Some(limit));
    problem.retry_after_ms = Some(RETRY_AFTER_MS);
}

/// A refusal of the job rules, if the problem is one.
fn job_refusal(problem: &Problem) -> Option<job::Refusal> {
    use job::Refusal as R;
    let Problem { token, how, current_token, expires_in_ms, state, what, why, .. } = problem.clone();
    Some(match problem.kind {
        ErrorKind::BadInput => R::BadInput(as_bad_input(problem.clone())),
        ErrorKind::JobNotFound => R::JobNotFound,
        ErrorKind::Stale => R::Stale { token: token?, outcome: of_word(how), current_token: current_token? },
        ErrorKind::Over => R::Over { token: token?, outcome: of_word(how)? },
        ErrorKind::WrongJob => R::WrongJob { token: token?, job_id: problem.job },
        ErrorKind::WrongHoldId => R::WrongHoldId { token: token? },
        ErrorKind::StoreRewound => R::StoreRewound { token: token?, current_token: current_token? },
        ErrorKind::Finished => R::Finished { state: state? },
        ErrorKind::WrongState => R::WrongState { state: state?, message: why? },
        ErrorKind::JobRunning => R::JobRunning {
            owner: problem.owner.clone()?,
            token: current_token?,
            remaining_ms: expires_in_ms?,
        },
        ErrorKind::NotExpired => R::NotExpired { remaining_ms: expires_in_ms? },
        ErrorKind::PriorityTooLow => R::PriorityTooLow { priority: problem.priority? },
        ErrorKind::Conflict => R::Conflict {
            field: what?,
            job_id: problem.job?,
            differs: why.unwrap_or_else(|| "payload".to_owned()),
        },
        ErrorKind::QueueDraining => R::QueueDraining { queue: problem.queue.clone()? },
        ErrorKind::LimitReached => R::LimitReached { message: what?, limit: problem.limit? },
        ErrorKind::TokensExhausted => R::TokensExhausted,
        _ => return None,
    })
}

impl From<Problem> for job::Refusal {
    fn from(problem: Problem) -> Self {
        // Only a peer of another make sends what is no refusal here; its words are all there is.
        job_refusal(&problem).unwrap_or_else(|| job::Refusal::BadInput(BadInput::new("item", problem.detail)))
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
            StoreError::LimitReached { message: what, limit } => {
                let mut problem = of(ErrorKind::LimitReached);
                full(&mut problem, what, limit);
                problem
            }
            StoreError::QueueNotEmpty { queue, message: holds } => {
                let mut problem = of(ErrorKind::QueueNotEmpty);
                (problem.queue, problem.what) = (Some(queue), Some(holds));
                problem
            }
            StoreError::Unsupported { store, message: what } => {
                let mut problem = of(ErrorKind::Unsupported);
                (problem.what, problem.why) = (Some(what), Some(store));
                problem
            }
            StoreError::CursorTooOld { cursor, oldest_cursor: oldest } => {
                let mut problem = of(ErrorKind::CursorTooOld);
                (problem.cursor, problem.oldest) = (Some(cursor), Some(oldest));
                problem
            }
            StoreError::Unavailable { message: why } => {
                let mut problem = of(ErrorKind::Unavailable);
                let retry_after_ms = closed::left_ms(&why).unwrap_or(RETRY_AFTER_MS);
                (problem.why, problem.retry_after_ms) = (Some(why), Some(retry_after_ms));
                problem
            }
            StoreError::OutcomeUnknown { message: why } => {
                let mut problem = of(ErrorKind::OutcomeUnknown);
                problem.why = Some(why);
                problem
            }
            StoreError::Denied { message: why } => {
                let mut problem =
                    Problem::new(ErrorKind::Forbidden, format!("{why}; ask whoever makes the tokens"));
                problem.why = Some(why);
                problem
            }
            StoreError::Unusable { store: place, message: why } => {
                let mut problem = of(ErrorKind::Unusable);
                (problem.what, problem.why) = (Some(place), Some(why));
                problem
            }
            StoreError::NoStore { store: place } => {
                let mut problem = of(ErrorKind::Unusable);
                (problem.what, problem.why) = (Some(place), Some("there is no store in it".to_owned()));
                problem
            }
        }
    }
}

/// What a problem that is a whole answer means to whoever asked. `about` is the key that was asked about, where the
/// problem names none.
pub fn store_error(problem: Problem, about: Option<&Key>) -> StoreError {
    if let Some(refusal) = lease_refusal(&problem)
        && let Some(key) = problem.key.as_ref().or(about)
    {
        return StoreError::Refused { key: key.clone(), refusal };
    }
    let why = problem.why.clone().unwrap_or_else(|| problem.detail.clone());
    let what = problem.what.clone();
    match problem.kind {
        ErrorKind::BadInput | ErrorKind::BodyTooLarge | ErrorKind::NotJson => {
            StoreError::BadInput(as_bad_input(problem))
        }
        ErrorKind::LimitReached => StoreError::LimitReached {
            message: what.unwrap_or(problem.detail),
            limit: problem.limit.unwrap_or(0),
        },
        ErrorKind::QueueNotEmpty => StoreError::QueueNotEmpty {
            queue: problem.queue.unwrap_or_default(),
            message: what.unwrap_or(problem.detail),
        },
        ErrorKind::Unsupported => {
            StoreError::Unsupported { store: why, message: what.unwrap_or(problem.detail) }
        }
        ErrorKind::CursorTooOld => StoreError::CursorTooOld {
            cursor: problem.cursor.unwrap_or(0),
            oldest_cursor: problem.oldest.unwrap_or(0),
        },
        ErrorKind::Unavailable | ErrorKind::Stopping | ErrorKind::RateLimited => {
            StoreError::Unavailable { message: why }
        }
        ErrorKind::OutcomeUnknown => StoreError::OutcomeUnknown { message: why },
        ErrorKind::Unauthorized | ErrorKind::Forbidden | ErrorKind::HostNotAllowed => {
            StoreError::Denied { message: why }
        }
        _ => StoreError::Unusable { store: what.unwrap_or_else(|| "the server".to_owned()), message: why },
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
        use job::Refusal as R;
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
            R::Conflict { field: "unique key".to_owned(), job_id: id, differs: "kind".to_owned() },
            R::QueueDraining { queue: QueueName::new("emails").unwrap() },
            R::LimitReached { message: "jobs".to_owned(), limit: 5 },
            R::TokensExhausted,
        ] {
            let back: R = through_json(refusal.clone().into()).into();
            assert_eq!(back, refusal);
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
            StoreError::Denied { message: text() },
            StoreError::Unusable { store: "file:x".to_owned(), message: text() },
        ] {
            assert_eq!(store_error(through_json(error.clone().into()), None), error);
        }
    }
}
