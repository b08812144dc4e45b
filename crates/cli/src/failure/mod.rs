//! What went wrong, for people: what happened, to which key or job, who holds it, what to do next; and the exit code.

mod job;

use fencehold_contract::StoreError;
pub(crate) use fencehold_contract::problem::ErrorKind;
use fencehold_contract::problem::Problem;
use fencehold_core::job::JobRefusal;
use fencehold_core::{BadInput, Key, Refusal, Token};
use serde::Serialize;

use crate::context::variable;
use crate::duration::show_ms;
use crate::exit_code::ExitStatus;
use crate::hold_id::{HOLD_VARIABLE, JOB_VARIABLE, KEY_VARIABLE};
use crate::process::{ACCESS_TOKEN_VARIABLE, PASS_TOKEN};
use crate::shell;

/// Why a command did not do what was asked.
#[derive(Debug, PartialEq)]
pub(crate) enum Failure {
    /// Something to say on stderr.
    Said {
        exit: ExitStatus,
        /// What happened.
        what: String,
        /// What to do next, where there is something.
        next: Option<String>,
        /// The same for programs.
        cause: Cause,
    },
    /// The reader of our stdout has gone: there is no one to report to.
    ReaderGone,
}

/// What an error is to programs.
#[derive(Debug, PartialEq)]
pub(crate) enum Cause {
    /// No more than its exit code says.
    Unknown,
    /// No more than its kind says.
    Kind(ErrorKind),
    /// What a store said.
    Store(Box<Problem>),
}

/// A problem that no server sends.
#[derive(Debug, Serialize)]
struct OwnProblem {
    r#type: &'static str,
    title: &'static str,
    detail: String,
}

/// What to do about a token that is missing or not good enough.
fn denied_next() -> String {
    let set = |name: &str| variable(name).is_some();
    if !set(ACCESS_TOKEN_VARIABLE) && (set(JOB_VARIABLE) || set(KEY_VARIABLE)) {
        return format!(
            "This runs under `fencehold run` or `work`, whose commands inherit {ACCESS_TOKEN_VARIABLE} only with {PASS_TOKEN}."
        );
    }
    format!(
        "Show a token that allows it with {ACCESS_TOKEN_VARIABLE}=…; `fencehold access-token create`, by an \
         administrator of the server, makes one."
    )
}

/// The answer to a call about one thing: stores answer in lists.
pub(crate) fn only_answer<T, R>(
    answers: Vec<Result<T, R>>,
    refused: impl FnOnce(R) -> Failure,
) -> Result<T, Failure> {
    let nothing = || Err(Failure::new(ExitStatus::Unavailable, "the store gave no answer"));
    answers
        .into_iter()
        .next()
        .map_or_else(nothing, |answer| answer.map_err(refused))
}

impl Failure {
    pub(crate) fn new(exit: ExitStatus, what: impl Into<String>) -> Self {
        Failure::Said { exit, what: what.into(), next: None, cause: Cause::Unknown }
    }

    /// Bad usage, or bad input.
    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Failure::new(ExitStatus::Usage, what)
    }

    /// A failure that no other exit code says more of.
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Failure::new(ExitStatus::Failed, what)
    }

    /// A failure of a kind, whose exit code follows from it.
    pub(crate) fn of_kind(kind: ErrorKind, what: impl Into<String>) -> Self {
        Failure::Said { exit: ExitStatus::of(kind), what: what.into(), next: None, cause: Cause::Kind(kind) }
    }

    /// What a store said, in other words for people.
    fn of_problem(problem: Problem, what: impl Into<String>) -> Self {
        let exit = ExitStatus::of(problem.kind);
        Failure::Said { exit, what: what.into(), next: None, cause: Cause::Store(Box::new(problem)) }
    }

    /// The problem object, as one line.
    pub(crate) fn json(&self) -> String {
        let Failure::Said { exit, what, next, cause } = self else { return String::new() };
        let detail = || match next {
            Some(next) => format!("{what}. {next}"),
            None => what.clone(),
        };
        let kind = match cause {
            Cause::Store(problem) => return serde_json::to_string(problem).unwrap_or_default(),
            Cause::Kind(kind) => Some(*kind),
            Cause::Unknown => exit.kind(),
        };
        // One that no server sends has no status; of one without a kind, RFC 9457 says `about:blank`.
        let written = match kind {
            Some(kind) if kind.status() != 0 => serde_json::to_string(&Problem::new(kind, detail())),
            kind => serde_json::to_string(&OwnProblem {
                r#type: kind.map_or("about:blank", ErrorKind::name),
                title: kind.map_or("Failed", ErrorKind::title),
                detail: detail(),
            }),
        };
        // Texts and numbers can always be written.
        written.unwrap_or_default()
    }

    /// The same failure with the way out.
    pub(crate) fn with_next(mut self, advice: impl Into<String>) -> Self {
        if let Failure::Said { next, .. } = &mut self {
            *next = Some(advice.into());
        }
        self
    }

    /// What a store answered, for people who gave its URL.
    pub(crate) fn of_store(error: StoreError, place: &str) -> Self {
        let problem = Problem::from(error.clone());
        let told = error.to_string();
        let said = |what: String| Failure::of_problem(problem.clone(), what);
        match error {
            StoreError::BadInput(bad) => bad.into(),
            StoreError::Refused { key, refusal } => Failure::refused(&key, refusal),
            StoreError::LimitReached { .. } => said(told).with_next("Try again later."),
            StoreError::QueueNotEmpty { queue, message } => {
                let quoted = shell::word(queue.as_str());
                said(format!("queue {queue} is not empty: {message}")).with_next(format!(
                    "Delete its jobs (`fencehold job rm --queue {quoted}`) and its schedules (`fencehold schedule ls`) \
                     first."
                ))
            }
            StoreError::Unauthorized { message } | StoreError::Forbidden { message } => {
                said(format!("{place} does not allow it: {message}")).with_next(denied_next())
            }
            StoreError::CursorTooOld { oldest_cursor, .. } => {
                let oldest = oldest_cursor.saturating_sub(1);
                said(told).with_next(format!("The oldest that can be read is --cursor {oldest}."))
            }
            StoreError::Unavailable { message } => said(format!(
                "the store {place} is unavailable: {message}"
            ))
            .with_next("Nothing was done, so it is safe to try again. `fencehold doctor` looks closer."),
            StoreError::OutcomeUnknown { message } => {
                said(format!("the outcome is unknown: {message} (store {place})"))
                    .with_next("It may have been carried out. The same can safely be tried again.")
            }
            StoreError::Unusable { store, message } => {
                said(format!("{store} cannot be used as a store: {message}"))
                    .with_next("Nothing in it was touched. `fencehold doctor` looks closer.")
            }
            StoreError::NoStore { store } => {
                let url = place
                    .strip_suffix("create=true")
                    .map_or(place, |url| url.trim_end_matches(['?', '&']));
                let create = format!("fencehold --store {} store create", shell::word(url));
                Failure::of_kind(ErrorKind::NoStore, format!("there is no store in {store}"))
                    .with_next(format!("If the path is right, create it: `{create}`."))
            }
            _ => said(told),
        }
    }

    /// What the library answered.
    pub(crate) fn of_library(error: fencehold::Error, place: &str) -> Self {
        use fencehold::{Error, HoldTarget};
        let of_store = |error| Failure::of_store(error, place);
        match error {
            Error::Held { key, owner, task, remaining, token, .. } => {
                let remaining_ms = u64::try_from(remaining.as_millis()).unwrap_or(u64::MAX);
                Failure::refused(&key, Refusal::Held { owner, task, remaining_ms, token })
            }
            Error::WaitTimedOut { .. } => Failure::of_kind(ErrorKind::WaitTimedOut, error.to_string())
                .with_next("See `fencehold lease ls` for who holds what."),
            Error::Lost { target: HoldTarget::Key(key), token, cause, .. } => {
                Failure::lost(&key, token, &cause.to_string())
            }
            Error::HoldIdUsed { .. } => Failure::new(ExitStatus::Lost, error.to_string()),
            Error::StoreRewound { key, token, current_token, .. } => {
                Failure::refused(&key, Refusal::StoreRewound { token, current_token })
            }
            Error::BadInput(bad) => bad.into(),
            Error::JobNotFound { job_id, .. } => Failure::refused_job(job_id, JobRefusal::JobNotFound),
            Error::Unavailable { message, .. } => of_store(StoreError::Unavailable { message }),
            Error::OutcomeUnknown { message, .. } => of_store(StoreError::OutcomeUnknown { message }),
            Error::Unusable { store, message, .. } => of_store(StoreError::Unusable { store, message }),
            Error::NoStore { store, .. } => of_store(StoreError::NoStore { store }),
            Error::Unsupported { store, message, .. } => of_store(StoreError::Unsupported { store, message }),
            Error::Unauthorized { message, .. } => of_store(StoreError::Unauthorized { message }),
            Error::Forbidden { message, .. } => of_store(StoreError::Forbidden { message }),
            Error::LimitReached { message, limit, .. } => {
                of_store(StoreError::LimitReached { message, limit })
            }
            other => Failure::failed(other.to_string()),
        }
    }

    /// A lease that was lost while it was relied on.
    pub(crate) fn lost(key: &Key, token: Token, why: &str) -> Self {
        let next = format!("`fencehold explain {}` shows what happened.", shell::word(key.as_str()));
        Failure::new(ExitStatus::Lost, format!("the lease on {key} under token {token} was lost: {why}"))
            .with_next(next)
    }

    /// What the rules refused, and to which key.
    pub(crate) fn refused(key: &Key, refusal: Refusal) -> Self {
        let quoted = shell::word(key.as_str());
        let problem = Problem::from(StoreError::refused(key, refusal.clone()));
        let said = |what: String| Failure::of_problem(problem, what);
        match refusal {
            Refusal::Held { owner, task, remaining_ms, token } => {
                let task = task.map(|task| format!(" for task {task}")).unwrap_or_default();
                let left = show_ms(remaining_ms);
                said(format!(
                    "{key} is held by {owner}{task} under token {token}, for another {left} unless renewed"
                ))
                .with_next(format!("Wait for it with --wait 60s, or see `fencehold explain {quoted}`."))
            }
            Refusal::HoldIdUsed { .. } => said(format!("{key}: {refusal}"))
                .with_next("A hold id is good for one acquisition. Acquire anew."),
            Refusal::Lost { token, outcome, by, reason, current_token } => {
                let how = outcome
                    .map(|outcome| format!(": {}", outcome.told(by.as_ref(), reason.as_ref())))
                    .unwrap_or_default();
                let newer = if current_token > token {
                    format!("; its token is now {current_token}")
                } else {
                    String::new()
                };
                said(format!("{key}: the lease under token {token} is over{how}{newer}")).with_next(format!(
                    "Stop what it protected. `fencehold explain {quoted}` shows what happened."
                ))
            }
            Refusal::WrongHoldId { token } => {
                said(format!("{key}: the hold id given is not the one that token {token} was granted to"))
                    .with_next(format!(
                        "{HOLD_VARIABLE} and FENCEHOLD_TOKEN must come from the same `lease acquire`."
                    ))
            }
            Refusal::StoreRewound { token, current_token } => said(format!(
                "{key}: the store has been rewound: token {token} was shown, it only knows {current_token}"
            ))
            .with_next("It was probably restored from a backup. `fencehold store advance` is the cure."),
            Refusal::TokensExhausted => said(format!("{key}: {refusal}"))
                .with_next("Use another key. No advance helps: tokens only grow. To advance a store less far, use --increment."),
            Refusal::NotHeld => said(format!("{key} is not held")),
            other => said(format!("{key}: {other}")),
        }
    }
}

impl From<BadInput> for Failure {
    fn from(bad: BadInput) -> Self {
        let what = bad.to_string();
        Failure::of_problem(StoreError::BadInput(bad).into(), what)
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::lease::LeaseOutcome;
    use fencehold_core::{Owner, Reason, Task};

    use super::*;

    fn parts(failure: Failure) -> (ExitStatus, String, String) {
        match failure {
            Failure::Said { exit, what, next, .. } => (exit, what, next.unwrap_or_default()),
            Failure::ReaderGone => panic!("nothing said"),
        }
    }

    #[test]
    fn a_held_key_names_key_holder_task_token_and_time_left() {
        let held = Refusal::Held {
            owner: Owner::new("host/1").unwrap(),
            task: Some(Task::new("run-42").unwrap()),
            remaining_ms: 12_345,
            token: Token::new(7),
        };
        let (exit, what, next) = parts(Failure::refused(&Key::new("it's").unwrap(), held));
        assert_eq!(exit, ExitStatus::Held);
        assert_eq!(
            what,
            "it's is held by host/1 for task run-42 under token 7, for another 12.3s unless renewed"
        );
        assert!(next.contains(r"fencehold explain 'it'\''s'"), "{next}");
    }

    #[test]
    fn each_kind_of_error_has_its_exit_code() {
        let key = Key::new("k").unwrap();
        let lost = Refusal::Lost {
            token: Token::new(1),
            outcome: Some(LeaseOutcome::Revoked),
            by: Some(Owner::new("ops@host").unwrap()),
            reason: Some(Reason::new("stuck deploy").unwrap()),
            current_token: Token::new(2),
        };
        let ended = Refusal::HoldIdUsed { token: None, outcome: None };
        let rewound = Refusal::StoreRewound { token: Token::new(9), current_token: Token::new(2) };
        let why = || "because".to_owned();
        let refused = |refusal| StoreError::Refused { key: key.clone(), refusal };
        for (error, exit) in [
            (refused(lost), ExitStatus::Lost),
            (refused(ended), ExitStatus::Lost),
            (refused(rewound), ExitStatus::Unusable),
            (refused(Refusal::WrongHoldId { token: Token::new(1) }), ExitStatus::Usage),
            (refused(Refusal::NotHeld), ExitStatus::Failed),
            (StoreError::Unavailable { message: why() }, ExitStatus::Unavailable),
            (StoreError::OutcomeUnknown { message: why() }, ExitStatus::Unavailable),
            (StoreError::Forbidden { message: why() }, ExitStatus::Denied),
            (StoreError::Unusable { store: "x".to_owned(), message: why() }, ExitStatus::Unusable),
            (StoreError::NoStore { store: "x".to_owned() }, ExitStatus::Unusable),
            (StoreError::BadInput(BadInput::new("ttl", "is 0 ms")), ExitStatus::Usage),
        ] {
            assert_eq!(parts(Failure::of_store(error.clone(), "file:x")).0, exit, "{error}");
        }
    }
}
