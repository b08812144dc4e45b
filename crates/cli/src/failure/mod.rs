//! What went wrong, for people: what happened, to which key or job, who holds it, what to do next; and the exit code.

mod job;

use fencehold_contract::StoreError;
use fencehold_core::{BadInput, Key, Refusal, Token};

use crate::duration::show_ms;
use crate::exit::Exit;
use crate::hold::{JOB_VARIABLE, KEY_VARIABLE};
use crate::process::{API_TOKEN_VARIABLE, PASS_TOKEN};
use crate::shell;

/// Why a verb did not do what was asked.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Something to say on stderr.
    Said {
        exit: Exit,
        /// What happened.
        what: String,
        /// What to do next, where there is something.
        next: Option<String>,
    },
    /// Whoever read our stdout has gone: there is nobody to tell.
    ReaderGone,
}

/// What to do about a token that is missing or not good enough.
fn denied_next() -> String {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    if !set(API_TOKEN_VARIABLE) && (set(JOB_VARIABLE) || set(KEY_VARIABLE)) {
        return format!(
            "This runs under `fencehold run` or `work`, whose commands inherit {API_TOKEN_VARIABLE} only with {PASS_TOKEN}."
        );
    }
    format!(
        "Show a token that allows it with {API_TOKEN_VARIABLE}=…; `fencehold token create`, by an administrator of the \
         server, makes one."
    )
}

/// The answer to a call about one thing: stores answer in lists.
pub(crate) fn only_answer<T, R>(
    answers: Vec<Result<T, R>>,
    refused: impl FnOnce(R) -> Failure,
) -> Result<T, Failure> {
    let nothing = || Err(Failure::new(Exit::Unavailable, "the store gave no answer"));
    answers
        .into_iter()
        .next()
        .map_or_else(nothing, |answer| answer.map_err(refused))
}

impl Failure {
    pub(crate) fn new(exit: Exit, what: impl Into<String>) -> Self {
        Failure::Said { exit, what: what.into(), next: None }
    }

    /// The same failure with the way out.
    pub(crate) fn with_next(self, advice: impl Into<String>) -> Self {
        match self {
            Failure::Said { exit, what, .. } => Failure::Said { exit, what, next: Some(advice.into()) },
            Failure::ReaderGone => Failure::ReaderGone,
        }
    }

    /// What a store answered, told to somebody who gave its URL.
    pub(crate) fn of_store(error: StoreError, place: &str) -> Self {
        match error {
            StoreError::BadInput(bad) => bad.into(),
            StoreError::Refused { key, refusal } => Failure::refused(&key, refusal),
            StoreError::LimitReached { .. } => {
                Failure::new(Exit::Unavailable, error.to_string()).with_next("Try again later.")
            }
            StoreError::QueueNotEmpty { queue, message: holds } => {
                let quoted = shell::word(queue.as_str());
                Failure::new(Exit::Held, format!("queue {queue} is not empty: {holds}")).with_next(format!(
                    "Delete its jobs (`fencehold job delete --queue {quoted}`) and remove its schedules \
                     (`fencehold schedule ls`) first."
                ))
            }
            StoreError::Forbidden { message: why } => {
                Failure::new(Exit::Denied, format!("{place} does not allow it: {why}"))
                    .with_next(denied_next())
            }
            StoreError::Unsupported { .. } => Failure::new(Exit::Usage, error.to_string()),
            StoreError::CursorTooOld { oldest_cursor: oldest, .. } => Failure::new(
                Exit::Failed,
                error.to_string(),
            )
            .with_next(format!("The oldest that can be read is --after {}.", oldest.saturating_sub(1))),
            StoreError::Unavailable { message: why } => {
                Failure::new(Exit::Unavailable, format!("the store {place} is unavailable: {why}")).with_next(
                    "Nothing was done, so it is safe to try again. `fencehold doctor` looks closer.",
                )
            }
            StoreError::OutcomeUnknown { message: why } => {
                Failure::new(Exit::Unavailable, format!("the outcome is unknown: {why} (store {place})"))
                    .with_next("It may have been carried out. The same can safely be tried again.")
            }
            StoreError::Unusable { store: place, message: why } => {
                Failure::new(Exit::Unusable, format!("{place} cannot be used as a store: {why}"))
                    .with_next("Nothing in it was touched. `fencehold doctor` looks closer.")
            }
            StoreError::NoStore { store: path } => {
                let url = place
                    .strip_suffix("create=true")
                    .map_or(place, |url| url.trim_end_matches(['?', '&']));
                let create = format!("fencehold --store {} store create", shell::word(url));
                Failure::new(Exit::Unusable, format!("there is no store in {path}"))
                    .with_next(format!("If the path is right, create it: `{create}`."))
            }
            other => Failure::new(Exit::Failed, other.to_string()),
        }
    }

    /// What the library answered.
    pub(crate) fn of_library(error: fencehold::Error, place: &str) -> Self {
        use fencehold::Error;
        match error {
            Error::Held { key, owner, task, expires_in, token } => {
                let expires_in_ms = u64::try_from(expires_in.as_millis()).unwrap_or(u64::MAX);
                Failure::refused(&key, Refusal::Held { owner, task, remaining_ms: expires_in_ms, token })
            }
            Error::WaitTimedOut { .. } => Failure::new(Exit::Held, error.to_string())
                .with_next("See `fencehold lease ls` for who holds what."),
            Error::Lost { key, token, why, .. } => Failure::lost(&key, token, &why.to_string()),
            Error::HoldIdUsed { .. } => Failure::new(Exit::Lost, error.to_string()),
            Error::StoreRewound { key, shown, current } => {
                Failure::refused(&key, Refusal::StoreRewound { token: shown, current_token: current })
            }
            Error::Refused { key, refusal } => Failure::refused(&key, refusal),
            Error::BadInput(bad) => bad.into(),
            Error::Unavailable { why } => Failure::of_store(StoreError::Unavailable { message: why }, place),
            Error::OutcomeUnknown { why } => {
                Failure::of_store(StoreError::OutcomeUnknown { message: why }, place)
            }
            Error::Unusable { place, why } => {
                Failure::of_store(StoreError::Unusable { store: place, message: why }, "")
            }
            Error::Unsupported { store, what } => {
                Failure::of_store(StoreError::Unsupported { store, message: what }, place)
            }
            Error::Denied { why } => Failure::of_store(StoreError::Forbidden { message: why }, place),
            Error::LimitReached { what, limit } => {
                Failure::of_store(StoreError::LimitReached { message: what, limit }, place)
            }
            Error::JobNotFound { job } => {
                Failure::refused_job(job, fencehold_core::job::Refusal::JobNotFound)
            }
            other => Failure::new(Exit::Failed, other.to_string()),
        }
    }

    /// A lease that was lost while it was relied on.
    pub(crate) fn lost(key: &Key, token: Token, why: &str) -> Self {
        let next = format!("`fencehold explain {}` tells what happened.", shell::word(key.as_str()));
        Failure::new(Exit::Lost, format!("the lease on {key} under token {token} was lost: {why}"))
            .with_next(next)
    }

    /// What the rules refused, and to which key.
    pub(crate) fn refused(key: &Key, refusal: Refusal) -> Self {
        let quoted = shell::word(key.as_str());
        match refusal {
            Refusal::Held { owner, task, remaining_ms: expires_in_ms, token } => {
                let task = task.map(|task| format!(" for task {task}")).unwrap_or_default();
                let left = show_ms(expires_in_ms);
                let what = format!(
                    "{key} is held by {owner}{task} under token {token}, for another {left} unless renewed"
                );
                Failure::new(Exit::Held, what)
                    .with_next(format!("Wait for it with --wait 60s, or see `fencehold explain {quoted}`."))
            }
            Refusal::HoldIdUsed { .. } => Failure::new(Exit::Lost, format!("{key}: {refusal}"))
                .with_next("A hold id is good for one acquisition. Acquire anew."),
            Refusal::Lost { token, outcome: how, by, reason, current_token: current } => {
                let how = how
                    .map(|how| format!(": {}", how.told(by.as_ref(), reason.as_ref())))
                    .unwrap_or_default();
                let newer =
                    if current > token { format!("; its token is now {current}") } else { String::new() };
                Failure::new(Exit::Lost, format!("{key}: the lease under token {token} is over{how}{newer}"))
                    .with_next(format!(
                        "Stop what it protected. `fencehold explain {quoted}` tells what happened."
                    ))
            }
            Refusal::WrongHoldId { token } => {
                let what =
                    format!("{key}: the hold id given is not the one that token {token} was granted to");
                Failure::new(Exit::Usage, what)
                    .with_next("FENCEHOLD_HOLD and FENCEHOLD_TOKEN must come from the same `lease acquire`.")
            }
            Refusal::StoreRewound { token: shown, current_token: current } => {
                let what = format!(
                    "{key}: the store has been rewound: token {shown} was shown, it only knows {current}"
                );
                Failure::new(Exit::Unusable, what).with_next(
                    "It was probably restored from a backup. `fencehold store advance` is the cure.",
                )
            }
            Refusal::NotHeld => Failure::new(Exit::Failed, format!("{key}: nobody holds this key")),
            other => Failure::new(Exit::Failed, format!("{key}: {other}")),
        }
    }
}

impl From<BadInput> for Failure {
    fn from(bad: BadInput) -> Self {
        Failure::new(Exit::Usage, bad.to_string())
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::lease::LeaseOutcome;
    use fencehold_core::{Owner, Reason, Task};

    use super::*;

    fn parts(failure: Failure) -> (Exit, String, String) {
        match failure {
            Failure::Said { exit, what, next } => (exit, what, next.unwrap_or_default()),
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
        assert_eq!(exit, Exit::Held);
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
            (refused(lost), Exit::Lost),
            (refused(ended), Exit::Lost),
            (refused(rewound), Exit::Unusable),
            (refused(Refusal::WrongHoldId { token: Token::new(1) }), Exit::Usage),
            (refused(Refusal::NotHeld), Exit::Failed),
            (StoreError::Unavailable { message: why() }, Exit::Unavailable),
            (StoreError::OutcomeUnknown { message: why() }, Exit::Unavailable),
            (StoreError::Denied { message: why() }, Exit::Denied),
            (StoreError::Unusable { store: "x".to_owned(), message: why() }, Exit::Unusable),
            (StoreError::NoStore { store: "x".to_owned() }, Exit::Unusable),
            (StoreError::BadInput(BadInput::new("ttl", "is 0 ms")), Exit::Usage),
        ] {
            assert_eq!(parts(Failure::of_store(error.clone(), "file:x")).0, exit, "{error}");
        }
    }
}
