//! Errors and problems: each kind of refusal is one kind of problem, and reads back as what it was.

use fencehold_core::{BadInput, Key, Refusal, job};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Problem, ProblemKind};
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
    let mut problem = Problem::new(ProblemKind::BadInput, bad.to_string());
    (problem.what, problem.why) = (Some(bad.field.into_owned()), Some(bad.problem));
    problem
}

fn as_bad_input(problem: Problem) -> BadInput {
    let field = problem.what.unwrap_or_else(|| "request".to_owned()).into();
    BadInput { field, problem: problem.why.unwrap_or(problem.detail) }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        let kind = match &refusal {
            Refusal::Held { .. } => ProblemKind::Held,
            Refusal::Ended { .. } => ProblemKind::Ended,
            Refusal::Lost { .. } => ProblemKind::Lost,
            Refusal::WrongHold { .. } => ProblemKind::WrongHold,
            Refusal::NotHeld => ProblemKind::NotHeld,
            Refusal::StillLive { .. } => ProblemKind::StillLive,
            Refusal::NotHigher { .. } => ProblemKind::NotHigher,
            Refusal::StoreRewound { .. } => ProblemKind::StoreRewound,
            Refusal::TokensExhausted => ProblemKind::TokensExhausted,
            _ => ProblemKind::Unusable,
        };
        let mut problem = Problem::new(kind, refusal.to_string());
        match refusal {
            Refusal::Held { owner, task, expires_in_ms, token } => {
                (problem.owner, problem.task) = (Some(owner), task);
                (problem.expires_in_ms, problem.current_token) = (Some(expires_in_ms), Some(token));
            }
            Refusal::Ended { token, how } => (problem.token, problem.how) = (token, how.and_then(word)),
            Refusal::Lost { token, how, by, reason, current } => {
                (problem.token, problem.how) = (Some(token), how.and_then(word));
                (problem.by, problem.reason, problem.current_token) = (by, reason, Some(current));
            }
            Refusal::WrongHold { token } => problem.token = Some(token),
            Refusal::StillLive { remaining_ms } => problem.expires_in_ms = Some(remaining_ms),
            Refusal::NotHigher { held } => problem.priority = Some(held),
            Refusal::StoreRewound { shown, current } => {
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
        ProblemKind::Held => Refusal::Held {
            owner: problem.owner.clone()?,
            task: problem.task.clone(),
            expires_in_ms: expires_in_ms?,
            token: current_token?,
        },
        ProblemKind::Ended => Refusal::Ended { token, how: of_word(how) },
        ProblemKind::Lost => Refusal::Lost {
            token: token?,
            how: of_word(how),
            by: problem.by.clone(),
            reason: problem.reason.clone(),
            current: current_token?,
        },
        ProblemKind::WrongHold => Refusal::WrongHold { token: token? },
        ProblemKind::NotHeld => Refusal::NotHeld,
        ProblemKind::StillLive => Refusal::StillLive { remaining_ms: expires_in_ms? },
        ProblemKind::NotHigher => Refusal::NotHigher { held: problem.priority? },
        ProblemKind::StoreRewound => Refusal::StoreRewound { shown: token?, current: current_token? },
        ProblemKind::TokensExhausted => Refusal::TokensExhausted,
        _ => return None,
    })
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        // Only a peer of another make sends what is no refusal here; the hold must then count as over.
        let (token, current) = (problem.token.unwrap_or_default(), problem.current_token.unwrap_or_default());
        lease_refusal(&problem).unwrap_or(Refusal::Lost { token, how: None, by: None, reason: None, current })
    }
}

impl From<job::Refusal> for Problem {
    fn from(refusal: job::Refusal) -> Self {
        use job::Refusal as R;
        let kind = match &refusal {
            R::BadInput(_) => ProblemKind::BadInput,
            R::Unknown => ProblemKind::NoSuchJob,
            R::Stale { .. } => ProblemKind::Stale,
            R::Over { .. } => ProblemKind::Over,
            R::OtherJob { .. } => ProblemKind::OtherJob,
            R::WrongHold { .. } => ProblemKind::WrongHold,
            R::StoreRewound { .. } => ProblemKind::StoreRewound,
            R::Finished { .. } => ProblemKind::Finished,
            R::NotNow { .. } => ProblemKind::NotNow,
            R::Running { .. } => ProblemKind::Running,
            R::StillLive { .. } => ProblemKind::StillLive,
            R::NotHigher { .. } => ProblemKind::NotHigher,
            R::Conflict { .. } => ProblemKind::Conflict,
            R::Draining { .. } => ProblemKind::Draining,
            R::Full { .. } => ProblemKind::Full,
            R::TokensExhausted => ProblemKind::TokensExhausted,
            _ => ProblemKind::Unusable,
        };
        let mut problem = Problem::new(kind, refusal.to_string());
        match refusal {
            R::BadInput(bad) => return bad_input(bad),
            R::Stale { token, how, current } => {
                (problem.token, problem.how) = (Some(token), how.and_then(word));
                problem.current_token = Some(current);
            }
            R::Over { token, how } => (problem.token, problem.how) = (Some(token), word(how)),
            R::OtherJob { token, job } => (problem.token, problem.job) = (Some(token), job),
            R::WrongHold { token } => problem.token = Some(token),
            R::StoreRewound { shown, current } => {
                (problem.token, problem.current_token) = (Some(shown), Some(current));
            }
            R::Finished { state } => problem.state = Some(state),
            R::NotNow { state, why } => (problem.state, problem.why) = (Some(state), Some(why)),
            R::Running { owner, token, expires_in_ms } => {
                (problem.owner, problem.current_token) = (Some(owner), Some(token));
                problem.expires_in_ms = Some(expires_in_ms);
            }
            R::StillLive { remaining_ms } => problem.expires_in_ms = Some(remaining_ms),
            R::NotHigher { held } => problem.priority = Some(held),
            R::Conflict { what, first, differs } => {
                (problem.what, problem.job) = (Some(what), Some(first));
                problem.why = Some(differs);
            }
            R::Draining { queue } => problem.queue = Some(queue),
            R::Full { what, limit } => full(&mut problem, what, limit),
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
        ProblemKind::BadInput => R::BadInput(as_bad_input(problem.clone())),
        ProblemKind::NoSuchJob => R::Unknown,
        ProblemKind::Stale => R::Stale { token: token?, how: of_word(how), current: current_token? },
        ProblemKind::Over => R::Over { token: token?, how: of_word(how)? },
        ProblemKind::OtherJob => R::OtherJob { token: token?, job: problem.job },
        ProblemKind::WrongHold => R::WrongHold { token: token? },
        ProblemKind::StoreRewound => R::StoreRewound { shown: token?, current: current_token? },
        ProblemKind::Finished => R::Finished { state: state? },
        ProblemKind::NotNow => R::NotNow { state: state?, why: why? },
        ProblemKind::Running => {
            R::Running { owner: problem.owner.clone()?, token: current_token?, expires_in_ms: expires_in_ms? }
        }
        ProblemKind::StillLive => R::StillLive { remaining_ms: expires_in_ms? },
        ProblemKind::NotHigher => R::NotHigher { held: problem.priority? },
        ProblemKind::Conflict => R::Conflict {
            what: what?,
            first: problem.job?,
            differs: why.unwrap_or_else(|| "payload".to_owned()),
        },
        ProblemKind::Draining => R::Draining { queue: problem.queue.clone()? },
        ProblemKind::Full => R::Full { what: what?, limit: problem.limit? },
        ProblemKind::TokensExhausted => R::TokensExhausted,
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
            StoreError::Full { what, limit } => {
                let mut problem = of(ProblemKind::Full);
                full(&mut problem, what, limit);
                problem
            }
            StoreError::NotEmpty { queue, holds } => {
                let mut problem = of(ProblemKind::NotEmpty);
                (problem.queue, problem.what) = (Some(queue), Some(holds));
                problem
            }
            StoreError::Unsupported { store, what } => {
                let mut problem = of(ProblemKind::Unsupported);
                (problem.what, problem.why) = (Some(what), Some(store));
                problem
            }
            StoreError::CursorTooOld { cursor, oldest } => {
                let mut problem = of(ProblemKind::CursorTooOld);
                (problem.cursor, problem.oldest) = (Some(cursor), Some(oldest));
                problem
            }
            StoreError::Unavailable { why } => {
                let mut problem = of(ProblemKind::Unavailable);
                let retry_after_ms = closed::left_ms(&why).unwrap_or(RETRY_AFTER_MS);
                (problem.why, problem.retry_after_ms) = (Some(why), Some(retry_after_ms));
                problem
            }
            StoreError::Unknown { why } => {
                let mut problem = of(ProblemKind::Unknown);
                problem.why = Some(why);
                problem
            }
            StoreError::Denied { why } => {
                let mut problem =
                    Problem::new(ProblemKind::Forbidden, format!("{why}; ask whoever makes the tokens"));
                problem.why = Some(why);
                problem
            }
            StoreError::Unusable { place, why } => {
                let mut problem = of(ProblemKind::Unusable);
                (problem.what, problem.why) = (Some(place), Some(why));
                problem
            }
            StoreError::NoStore { place } => {
                let mut problem = of(ProblemKind::Unusable);
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
        ProblemKind::BadInput | ProblemKind::TooLarge | ProblemKind::NotJson => {
            StoreError::BadInput(as_bad_input(problem))
        }
        ProblemKind::Full => {
            StoreError::Full { what: what.unwrap_or(problem.detail), limit: problem.limit.unwrap_or(0) }
        }
        ProblemKind::NotEmpty => StoreError::NotEmpty {
            queue: problem.queue.unwrap_or_default(),
            holds: what.unwrap_or(problem.detail),
        },
        ProblemKind::Unsupported => {
            StoreError::Unsupported { store: why, what: what.unwrap_or(problem.detail) }
        }
        ProblemKind::CursorTooOld => StoreError::CursorTooOld {
            cursor: problem.cursor.unwrap_or(0),
            oldest: problem.oldest.unwrap_or(0),
        },
        ProblemKind::Unavailable | ProblemKind::Stopping | ProblemKind::Limited => {
            StoreError::Unavailable { why }
        }
        ProblemKind::Unknown => StoreError::Unknown { why },
        ProblemKind::Unauthorized | ProblemKind::Forbidden | ProblemKind::ForeignHost => {
            StoreError::Denied { why }
        }
        _ => StoreError::Unusable { place: what.unwrap_or_else(|| "the server".to_owned()), why },
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::job::{Ended, JobId, Queue, State};
    use fencehold_core::lease::How;
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
            Refusal::Held { owner, task: Task::new("run-42").ok(), expires_in_ms: 5, token: token(33) },
            Refusal::Ended { token: None, how: None },
            Refusal::WrongHold { token: token(3) },
            Refusal::NotHeld,
            Refusal::StillLive { remaining_ms: 9 },
            Refusal::NotHigher { held: -3 },
            Refusal::StoreRewound { shown: token(9), current: token(3) },
            Refusal::TokensExhausted,
        ];
        for how in How::ALL {
            refusals.push(Refusal::Ended { token: Some(token(2)), how: Some(how) });
            let (by, reason) = (Some(Owner::new("ops@host").unwrap()), Some(Reason::new("stuck").unwrap()));
            refusals.push(Refusal::Lost { token: token(2), how: Some(how), by, reason, current: token(4) });
            let (by, reason) = (None, None);
            refusals.push(Refusal::Lost { token: token(2), how: Some(how), by, reason, current: token(4) });
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
            R::Unknown,
            R::Stale { token: token(2), how: Some(Ended::Crashed), current: token(3) },
            R::Stale { token: token(2), how: None, current: token(3) },
            R::Over { token: token(2), how: Ended::CompletedLate },
            R::OtherJob { token: token(2), job: Some(id) },
            R::OtherJob { token: token(2), job: None },
            R::WrongHold { token: token(2) },
            R::StoreRewound { shown: token(9), current: token(3) },
            R::Finished { state: State::Cancelled },
            R::NotNow { state: State::Running, why: "cancel it first".to_owned() },
            R::Running { owner, token: token(4), expires_in_ms: 70 },
            R::StillLive { remaining_ms: 9 },
            R::NotHigher { held: 3 },
            R::Conflict { what: "unique key".to_owned(), first: id, differs: "kind".to_owned() },
            R::Draining { queue: Queue::new("emails").unwrap() },
            R::Full { what: "jobs".to_owned(), limit: 5 },
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
            StoreError::Full { what: text(), limit: 7 },
            StoreError::NotEmpty { queue: Queue::new("emails").unwrap(), holds: text() },
            StoreError::Unsupported { store: "etcd:".to_owned(), what: text() },
            StoreError::CursorTooOld { cursor: 1, oldest: 5 },
            StoreError::Unavailable { why: text() },
            StoreError::Unknown { why: text() },
            StoreError::Denied { why: text() },
            StoreError::Unusable { place: "file:x".to_owned(), why: text() },
        ] {
            assert_eq!(store_error(through_json(error.clone().into()), None), error);
        }
    }
}
