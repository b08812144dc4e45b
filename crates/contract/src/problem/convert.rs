//! Errors and problems: each kind of refusal is one kind of problem, and reads back as what it was.

use fencehold_core::job::{AttemptOutcome, JobId, JobRefusal};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{BadInput, Key, Refusal};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{ErrorKind, Problem};
use crate::quota::Limited;
use crate::{StoreError, closed};

/// How soon trying again makes sense where a bound of the store is reached, or the store is away.
const RETRY_AFTER_MS: u64 = 1_000;

/// Between a member of a refusal, which some need not have, and the one of a problem, which any need not have.
trait Member<P>: Sized {
    fn put(self) -> Option<P>;
    fn take(member: Option<P>) -> Option<Self>;
}

impl<T> Member<T> for T {
    fn put(self) -> Option<T> {
        Some(self)
    }

    fn take(member: Option<T>) -> Option<T> {
        member
    }
}

impl<T> Member<T> for Option<T> {
    fn put(self) -> Option<T> {
        self
    }

    fn take(member: Option<T>) -> Option<Self> {
        Some(member)
    }
}

/// How something ended: in a problem it is the word for it, as it stands in every record.
trait Outcome: Serialize + DeserializeOwned {}
impl Outcome for LeaseOutcome {}
impl Outcome for AttemptOutcome {}

impl<O: Outcome> Member<String> for O {
    fn put(self) -> Option<String> {
        serde_json::to_value(self).ok()?.as_str().map(str::to_owned)
    }

    fn take(member: Option<String>) -> Option<Self> {
        serde_json::from_value(member?.into()).ok()
    }
}

impl<O: Outcome> Member<String> for Option<O> {
    fn put(self) -> Option<String> {
        self?.put()
    }

    fn take(member: Option<String>) -> Option<Self> {
        Some(O::take(member))
    }
}

macro_rules! member {
    ($problem:ident, $field:ident) => {
        $problem.$field
    };
    ($problem:ident, $field:ident $member:ident) => {
        $problem.$member
    };
}

/// Each row: a refusal with its fields (`field: member` where the problem calls it otherwise), and the kind of problem that it is. Of several
/// refusals of one kind, a problem is the first whose members it has.
macro_rules! refusals {
    ($to:ident, $from:ident, $Refusal:ident {
        $($variant:ident $({ $($field:ident $(: $member:ident)?),+ })? = $kind:ident;)*
    }) => {
        fn $to(refusal: $Refusal) -> Problem {
            let said = refusal.to_string();
            match refusal {
                $($Refusal::$variant $({ $($field),+ })? => {
                    #[allow(unused_mut, reason = "some have no fields")]
                    let mut problem = Problem::new(ErrorKind::$kind, said);
                    $($(member!(problem, $field $($member)?) = $field.put();)+)?
                    problem
                })*
                _ => Problem::new(ErrorKind::Unusable, said),
            }
        }

        fn $from(problem: &Problem) -> Option<$Refusal> {
            None$(.or_else(|| {
                if problem.kind != ErrorKind::$kind {
                    return None;
                }
                Some($Refusal::$variant $({
                    $($field: Member::take(member!(problem, $field $($member)?).clone())?),+
                })?)
            }))*
        }
    };
}

refusals! {
    of_lease, lease_refusal, Refusal {
        Held { owner, task, remaining_ms, token: current_token } = Held;
        HoldIdUsed { token, outcome } = HoldIdUsed;
        Lost { token, outcome, by, reason, current_token } = Lost;
        WrongHoldId { token } = WrongHoldId;
        NotHeld = NotHeld;
        NotExpired { remaining_ms } = NotExpired;
        PriorityTooLow { priority } = PriorityTooLow;
        StoreRewound { token, current_token } = StoreRewound;
        TokensExhausted = TokensExhausted;
    }
}

refusals! {
    of_job, job_refusal, JobRefusal {
        JobNotFound = JobNotFound;
        Finished { state } = Lost;
        Stale { token, outcome, current_token } = Lost;
        Over { token, outcome } = Lost;
        WrongJob { token, job_id } = WrongJob;
        WrongHoldId { token } = WrongHoldId;
        StoreRewound { token, current_token } = StoreRewound;
        WrongState { state, message } = WrongState;
        JobRunning { owner, token: current_token, remaining_ms } = JobRunning;
        NotExpired { remaining_ms } = NotExpired;
        PriorityTooLow { priority } = PriorityTooLow;
        Conflict { field, job_id, differs } = Conflict;
        QueueDraining { queue } = QueueDraining;
        LimitReached { message, limit } = LimitReached;
        TokensExhausted = TokensExhausted;
    }
}

impl From<BadInput> for Problem {
    fn from(bad: BadInput) -> Self {
        let problem = Problem::new(ErrorKind::BadInput, bad.to_string());
        Problem { field: Some(bad.field.into_owned()), message: Some(bad.message), ..problem }
    }
}

fn as_bad_input(problem: Problem) -> BadInput {
    let field = problem.field.unwrap_or_else(|| "request".to_owned()).into();
    BadInput { field, message: problem.message.unwrap_or(problem.detail) }
}

/// Says which quota is used up, and when to try again.
fn limit_reached(problem: Problem) -> Problem {
    let limited = problem.message.as_deref().and_then(Limited::named_in);
    let quota = limited.map(|limited| limited.quota().to_owned());
    Problem { quota, retry_after_ms: Some(RETRY_AFTER_MS), ..problem }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        of_lease(refusal)
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        // Only a peer of another make sends what is no refusal here; the hold must then count as over.
        let (token, current_token) =
            (problem.token.unwrap_or_default(), problem.current_token.unwrap_or_default());
        let over = Refusal::Lost { token, outcome: None, by: None, reason: None, current_token };
        lease_refusal(&problem).unwrap_or(over)
    }
}

impl From<JobRefusal> for Problem {
    fn from(refusal: JobRefusal) -> Self {
        match refusal {
            JobRefusal::BadInput(bad) => bad.into(),
            refusal @ JobRefusal::LimitReached { .. } => limit_reached(of_job(refusal)),
            refusal => of_job(refusal),
        }
    }
}

impl From<Problem> for JobRefusal {
    fn from(mut problem: Problem) -> Self {
        match problem.kind {
            ErrorKind::BadInput => return JobRefusal::BadInput(as_bad_input(problem)),
            ErrorKind::Conflict => drop(problem.differs.get_or_insert_with(|| "payload".to_owned())),
            _ => {}
        }
        // Only a peer of another make sends what is no refusal here; its words are all there is.
        job_refusal(&problem).unwrap_or_else(|| JobRefusal::BadInput(BadInput::new("item", problem.detail)))
    }
}

impl From<StoreError> for Problem {
    fn from(error: StoreError) -> Self {
        let said = error.to_string();
        let of = |kind, message| Problem { message: Some(message), ..Problem::new(kind, said.clone()) };
        match error {
            StoreError::BadInput(bad) => bad.into(),
            StoreError::Refused { key, refusal } => {
                Problem { detail: said, key: Some(key), ..refusal.into() }
            }
            StoreError::LimitReached { message, limit } => {
                limit_reached(Problem { limit: Some(limit), ..of(ErrorKind::LimitReached, message) })
            }
            StoreError::QueueNotEmpty { queue, message } => {
                Problem { queue: Some(queue), ..of(ErrorKind::QueueNotEmpty, message) }
            }
            StoreError::Unsupported { store, message } => {
                Problem { store: Some(store), ..of(ErrorKind::Unsupported, message) }
            }
            StoreError::CursorTooOld { cursor, oldest_cursor } => Problem {
                cursor: Some(cursor),
                oldest_cursor: Some(oldest_cursor),
                ..Problem::new(ErrorKind::CursorTooOld, said)
            },
            StoreError::Unavailable { message } => {
                let retry_after_ms = Some(closed::left_ms(&message).unwrap_or(RETRY_AFTER_MS));
                Problem { retry_after_ms, ..of(ErrorKind::Unavailable, message) }
            }
            StoreError::OutcomeUnknown { message } => of(ErrorKind::OutcomeUnknown, message),
            StoreError::Unauthorized { message } => of(ErrorKind::Unauthorized, message),
            StoreError::Forbidden { message } => {
                let detail = format!("{message}; ask an operator for an access token that allows it");
                Problem { detail, ..of(ErrorKind::Forbidden, message) }
            }
            StoreError::Unusable { store, message } => {
                Problem { store: Some(store), ..of(ErrorKind::Unusable, message) }
            }
            StoreError::NoStore { store } => Problem {
                store: Some(store),
                ..of(ErrorKind::Unusable, "there is no store in it".to_owned())
            },
        }
    }
}

impl Problem {
    /// Why a job was not cancelled, retried or deleted. That it has finished is the wrong state for that, and no loss.
    pub(crate) fn of_change(job_id: JobId, refusal: JobRefusal) -> Self {
        let problem = match refusal {
            JobRefusal::Finished { state } => {
                Problem { state: Some(state), ..Problem::new(ErrorKind::WrongState, refusal.to_string()) }
            }
            refusal => refusal.into(),
        };
        Problem { job_id: Some(job_id), ..problem }
    }

    /// The refusal that it was made from.
    pub(crate) fn into_change_refusal(self) -> JobRefusal {
        match (self.kind, self.state, &self.message) {
            (ErrorKind::WrongState, Some(state), None) => JobRefusal::Finished { state },
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
    use fencehold_core::job::{JobState, QueueName};
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
        use JobRefusal as R;
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
