//! The words for what went wrong: what happened, to what, who is in the way, what to do next.

use std::fmt;
use std::time::Duration;

use super::{Error, LostCause};
use crate::holding::HoldTarget;

impl fmt::Display for Error {
    #[expect(clippy::too_many_lines, reason = "a list")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Held { key, owner, task, remaining, token } => {
                write!(f, "{key} is held by {owner}")?;
                if let Some(task) = task {
                    write!(f, " for {task}")?;
                }
                let remaining = ShownTime(*remaining);
                write!(f, " under token {token}, for another {remaining} unless it is renewed; ")?;
                write!(f, "wait for it, or try again later")
            }
            Error::Lost { target, token, cause, current_token } => {
                let (of, next) = match target {
                    HoldTarget::Key(key) => {
                        write!(f, "the lease on {key}")?;
                        ("key", "stop what ran under it, and acquire anew")
                    }
                    HoldTarget::Job(job) => {
                        write!(f, "the claim of job {job}")?;
                        ("job", "stop the work: the store goes on without this attempt")
                    }
                };
                write!(f, " under token {token} is lost: {cause}")?;
                if let Some(current) = current_token.filter(|current| current != token) {
                    write!(f, "; the {of}'s token is now {current}")?;
                }
                write!(f, "; {next}")
            }
            Error::HoldIdUsed { key, token, outcome } => {
                write!(f, "{key}: this acquisition ")?;
                match (token, outcome) {
                    (Some(token), Some(outcome)) => write!(f, "had token {token} ({outcome})")?,
                    _ => f.write_str(
                        "may have been granted: the key's history no longer reaches back that far",
                    )?,
                }
                f.write_str(" and was over before its answer arrived; acquire anew")
            }
            Error::WaitTimedOut { keys, waited } => {
                let waited = ShownTime(*waited);
                match keys.as_slice() {
                    [key] => write!(f, "{key} did not come free within {waited}; ")?,
                    keys => write!(f, "none of {} keys came free within {waited}; ", keys.len())?,
                }
                write!(f, "wait for longer")
            }
            Error::OutcomeUnknown { message } => {
                write!(
                    f,
                    "it is not known whether this was carried out: {message}; asking again under the same id is safe"
                )
            }
            Error::StoreRewound { key, token, current_token } => write!(
                f,
                "{key}: token {token} was shown, but this store knows only {current_token}: it was rewound (a restored \
                 backup, or a failover with loss); stop the holders, and have the store advanced"
            ),
            Error::Closed => f.write_str("this handle was closed; connect anew"),
            Error::Unavailable { message } => {
                write!(f, "the store is unavailable: {message}; nothing was done, try again")
            }
            Error::BadInput(bad) => bad.fmt(f),
            Error::Unsupported { store, message } => write!(f, "the store {store} cannot {message}"),
            Error::Unauthorized { message } | Error::Forbidden { message } => {
                write!(f, "not allowed: {message}")
            }
            Error::LimitReached { message, limit } => {
                write!(f, "{message}: the limit of {limit} is reached; try again later")
            }
            Error::QueueNotEmpty { queue, message } => {
                write!(f, "queue {queue} is not empty: {message}; delete its jobs and schedules first")
            }
            Error::Unusable { store, message } => {
                write!(f, "{store} cannot be used as a store: {message}; it was left untouched")
            }
            Error::NoStore { store } => write!(
                f,
                "there is no store in {store}; if the path is right, create one with `FenceholdBuilder::create` or \
                 `?create=true` in its URL"
            ),
            Error::CursorTooOld { cursor, oldest_cursor } => write!(
                f,
                "the cursor {cursor} is too old: the oldest event kept is {oldest_cursor}; list what is held and go on \
                 from there"
            ),
            Error::Refused { key, message, .. } => write!(f, "{key}: {message}"),
            Error::JobNotFound { job_id } => {
                write!(
                    f,
                    "there is no job {job_id}: it never was, or it was deleted, or pruned after its time"
                )
            }
            Error::JobFailed { job_id, state, error } => {
                write!(f, "job {job_id} is {state} and gave no result")?;
                if let Some(error) = error {
                    write!(f, ": {error}")?;
                }
                Ok(())
            }
            Error::JobNotFinished { job_id, state, waited } => {
                write!(f, "job {job_id} is still {state} after {}; wait for longer", ShownTime(*waited))
            }
            Error::Conflict { field, job_id, differs } if field == "result" => {
                write!(f, "job {job_id} was completed with another {differs}; the first completion stands")
            }
            Error::Conflict { field, job_id, differs } => write!(
                f,
                "the {} was used before, by job {job_id}, which has another {differs}; the same key means the same \
                 work",
                field.replace('_', " ")
            ),
            Error::QueueDraining { queue } => {
                write!(f, "queue {queue} is being drained and takes no new jobs until it is resumed")
            }
            Error::InDoubt { job_id, effect } => write!(
                f,
                "job {job_id} has stopped: it is not known whether its effect {effect} happened; look there, and \
                 resolve it"
            ),
            Error::JobRefused { job_id, message, .. } => write!(f, "job {job_id}: {message}"),
        }
    }
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostCause::Released => f.write_str("its holder gave it back"),
            LostCause::Ended { outcome: None, .. } => {
                f.write_str("it is over, and the store no longer remembers how")
            }
            LostCause::Ended { outcome: Some(outcome), by, reason, .. } => {
                f.write_str(&outcome.told(by.as_ref(), reason.as_ref()))
            }
            LostCause::NotRenewed { failure: Some(failure) } => {
                write!(f, "it could not be renewed in time: {failure}")
            }
            LostCause::NotRenewed { failure: None } => {
                f.write_str("it was not renewed in time: this process did not run for too long")
            }
            LostCause::StoreRewound { current_token } => write!(
                f,
                "the store was rewound and knows only token {current_token}; have the store advanced"
            ),
            LostCause::WrongHoldId => f.write_str("the store knows its token under another hold"),
        }
    }
}

/// A time as people say it.
pub(crate) struct ShownTime(pub(crate) Duration);

impl fmt::Display for ShownTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0.as_millis();
        match ms {
            0..1_000 => write!(f, "{ms} ms"),
            1_000..120_000 => write!(f, "{}.{} s", ms / 1_000, ms % 1_000 / 100),
            _ => write!(f, "{} min", ms / 60_000),
        }
    }
}

#[cfg(test)]
mod tests {
    use fencehold_core::lease::LeaseOutcome;
    use fencehold_core::{Key, Owner, Reason, Refusal, Token};

    use super::*;

    fn key() -> Key {
        Key::new("k").expect("a key")
    }

    #[test]
    fn an_error_says_what_happened_and_what_to_do() {
        let lost = |how, by: Option<&str>, reason: Option<&str>| Refusal::Lost {
            token: Token::new(3),
            outcome: Some(how),
            by: by.map(|by| Owner::new(by).expect("an owner")),
            reason: reason.map(|reason| Reason::new(reason).expect("a reason")),
            current_token: Token::new(5),
        };
        for (how, by, reason, why) in [
            (LeaseOutcome::Expired, None, None, "it expired: it was not renewed in time"),
            (LeaseOutcome::Revoked, Some("ops"), Some("stuck"), "it was revoked by ops (stuck)"),
            (LeaseOutcome::Yielded, Some("b"), None, "it was asked to yield by b, and its time was up"),
            (LeaseOutcome::Advanced, Some("ops"), None, "it was ended by store advance by ops"),
        ] {
            let expected = format!(
                "the lease on k under token 3 is lost: {why}; the key's token is now 5; stop what ran under it, \
                 and acquire anew"
            );
            assert_eq!(Error::refused(key(), lost(how, by, reason)).to_string(), expected);
        }
        let late = Error::WaitTimedOut { keys: vec![key()], waited: Duration::from_millis(61_500) };
        assert_eq!(late.to_string(), "k did not come free within 61.5 s; wait for longer");
        let full = Error::LimitReached { message: "k: requests in line".to_owned(), limit: 16_384 };
        let expected = "k: requests in line: the limit of 16384 is reached; try again later";
        assert_eq!(full.to_string(), expected);
    }

    /// A program that uses the library need not have the command line; that one adds its own hints.
    #[test]
    fn no_error_of_the_library_names_a_command() {
        use fencehold_core::job::{JobId, JobState, QueueName};

        let (job_id, waited) = (JobId::from_random(0, [7; 10]), Duration::from_secs(1));
        let (token, owner) = (Token::new(3), Owner::new("me").expect("an owner"));
        for error in [
            Error::Held { key: key(), owner, task: None, remaining: waited, token },
            Error::WaitTimedOut { keys: vec![key()], waited },
            Error::StoreRewound { key: key(), token, current_token: Token::new(1) },
            Error::Unavailable { message: "because".to_owned() },
            Error::JobFailed { job_id, state: JobState::Failed, error: None },
            Error::JobNotFinished { job_id, state: JobState::Running, waited },
            Error::QueueDraining { queue: QueueName::default() },
            Error::InDoubt { job_id, effect: "charge".to_owned() },
            Error::Lost {
                target: HoldTarget::Key(key()),
                token,
                cause: LostCause::StoreRewound { current_token: token },
                current_token: None,
            },
        ] {
            assert!(!error.to_string().contains("`fencehold"), "{error}");
        }
    }

    #[test]
    fn a_time_is_shown_as_people_say_it() {
        let shown = |ms| ShownTime(Duration::from_millis(ms)).to_string();
        let shown = [0, 999, 1_000, 119_999, 120_000].map(shown);
        assert_eq!(shown, ["0 ms", "999 ms", "1.0 s", "119.9 s", "2 min"]);
    }
}
