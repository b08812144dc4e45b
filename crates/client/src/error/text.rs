//! The words for what went wrong: what happened, to what, who is in the way, what to do next.

use std::fmt;
use std::time::Duration;

use fencehold_core::job::QueueName;

use super::{Error, LostCause};

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Held { key, owner, task, expires_in, token } => {
                write!(f, "{key} is held by {owner}")?;
                if let Some(task) = task {
                    write!(f, " for {task}")?;
                }
                let expires_in = Shown(*expires_in);
                write!(f, " under token {token}, for another {expires_in} unless it is renewed; ")?;
                write!(f, "wait for it, or try again later")
            }
            Error::Lost { key, token, why, current_token } => {
                write!(f, "the lease on {key} under token {token} is lost: {why}")?;
                if let Some(current) = current_token.filter(|current| current != token) {
                    write!(f, "; the key's token is now {current}")?;
                }
                write!(f, "; stop what ran under it, and acquire anew")
            }
            Error::HoldIdUsed { key, token, how } => {
                write!(f, "{key}: this acquisition")?;
                match (token, how) {
                    (Some(token), Some(how)) => write!(f, " had token {token} ({how})")?,
                    _ => write!(
                        f,
                        " may have been granted: the key's history no longer reaches back that far"
                    )?,
                }
                write!(f, " and was over before its answer arrived; acquire anew")
            }
            Error::WaitTimedOut { keys, waited } => {
                let waited = Shown(*waited);
                match keys.as_slice() {
                    [key] => write!(f, "{key} did not come free within {waited}; ")?,
                    keys => write!(f, "none of {} keys came free within {waited}; ", keys.len())?,
                }
                write!(f, "wait for longer")
            }
            Error::OutcomeUnknown { why } => {
                write!(f, "it is not known whether this was carried out: {why}; asking again is safe")
            }
            Error::StoreRewound { key, shown, current } => write!(
                f,
                "{key}: token {shown} was shown, but this store knows only {current}: it was rewound (a restored \
                 backup, or a failover with loss); stop the holders, and have the store advanced"
            ),
            Error::Unavailable { why } => {
                write!(f, "the store is unavailable: {why}; nothing was done, try again")
            }
            Error::BadInput(bad) => bad.fmt(f),
            Error::Unsupported { store, what } => write!(f, "the store {store} cannot {what}"),
            Error::Denied { why } => write!(f, "not allowed: {why}"),
            Error::LimitReached { what, limit } => {
                write!(f, "{what}: the limit of {limit} is reached; try again later")
            }
            Error::QueueNotEmpty { queue, holds } => not_empty(f, queue, holds),
            Error::Unusable { place, why } => {
                write!(f, "{place} cannot be used as a store: {why}; it was left untouched")
            }
            Error::CursorTooOld { cursor, oldest } => write!(
                f,
                "the cursor {cursor} is too old: the oldest event kept is {oldest}; list what is held and go on from there"
            ),
            Error::Refused { key, refusal } => write!(f, "{key}: {refusal}"),
            Error::ClaimLost { job, token, why, current_token } => {
                write!(f, "the claim of job {job} under token {token} is lost: {why}")?;
                if let Some(current) = current_token.filter(|current| current != token) {
                    write!(f, "; the job's token is now {current}")?;
                }
                write!(f, "; stop the work: the store goes on without this attempt")
            }
            Error::JobNotFound { job } => {
                write!(f, "there is no job {job}: it never was, or it was deleted, or pruned after its time")
            }
            Error::JobFailed { job, state, error } => {
                write!(f, "job {job} is {state} and gave no result")?;
                if let Some(error) = error {
                    write!(f, ": {error}")?;
                }
                Ok(())
            }
            Error::JobNotFinished { job, state, waited } => {
                write!(f, "job {job} is still {state} after {}; wait for longer", Shown(*waited))
            }
            Error::Conflict { what, first, differs } => write!(
                f,
                "the {what} was used before, by job {first}, which has another {differs}; the same key means the same work"
            ),
            Error::QueueDraining { queue } => {
                write!(f, "queue {queue} is being drained and takes no new jobs until it is resumed")
            }
            Error::InDoubt { job, effect } => write!(
                f,
                "job {job} has stopped: nobody knows whether its effect {effect} happened; look there, and resolve it"
            ),
            Error::JobRefused { job, refusal } => write!(f, "job {job}: {refusal}"),
        }
    }
}

fn not_empty(f: &mut fmt::Formatter<'_>, queue: &QueueName, holds: &str) -> fmt::Result {
    write!(f, "queue {queue} is not empty: {holds}; delete its jobs and remove its schedules first")
}

impl fmt::Display for LostCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostCause::Released => f.write_str("its holder gave it back"),
            LostCause::Ended { how: None, .. } => {
                f.write_str("it is over, and the store no longer remembers how")
            }
            LostCause::Ended { how: Some(how), by, reason, .. } => {
                f.write_str(&how.told(by.as_ref(), reason.as_ref()))
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
pub(crate) struct Shown(pub(crate) Duration);

impl fmt::Display for Shown {
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
        let told = [
            (lost(LeaseOutcome::Expired, None, None), "it expired: it was not renewed in time"),
            (
                lost(LeaseOutcome::Revoked, Some("ops@web-1"), Some("stuck deploy")),
                "it was revoked by ops@web-1 (stuck deploy)",
            ),
            (
                lost(LeaseOutcome::Yielded, Some("urgent"), None),
                "it was asked to yield by urgent, and its time was up",
            ),
            (
                lost(LeaseOutcome::Advanced, Some("ops@web-1"), None),
                "it was ended by store advance by ops@web-1",
            ),
        ];
        for (lost, why) in told {
            assert_eq!(
                Error::refused(key(), lost).to_string(),
                format!(
                    "the lease on k under token 3 is lost: {why}; the key's token is now 5; stop what ran under it, \
                     and acquire anew"
                )
            );
        }
        let waited = Duration::from_millis(61_500);
        assert_eq!(
            Error::WaitTimedOut { keys: vec![key()], waited }.to_string(),
            "k did not come free within 61.5 s; wait for longer"
        );
        let full = Error::LimitReached { what: "k: requests in line for this key".to_owned(), limit: 16_384 };
        assert_eq!(
            full.to_string(),
            "k: requests in line for this key: the limit of 16384 is reached; try again later"
        );
    }

    /// A program that uses the library need not have the command line; that one adds its own hints.
    #[test]
    fn no_error_of_the_library_names_a_command() {
        use fencehold_core::job::{JobId, JobState, QueueName};

        let (job, waited) = (JobId::from_random(0, [7; 10]), Duration::from_secs(1));
        let why = || "because".to_owned();
        let (token, owner) = (Token::new(3), Owner::new("me").expect("an owner"));
        for error in [
            Error::Held { key: key(), owner, task: None, expires_in: waited, token },
            Error::WaitTimedOut { keys: vec![key()], waited },
            Error::StoreRewound { key: key(), shown: token, current: Token::new(1) },
            Error::Unavailable { why: why() },
            Error::JobFailed { job, state: JobState::Failed, error: None },
            Error::JobNotFinished { job, state: JobState::Running, waited },
            Error::QueueDraining { queue: QueueName::default() },
            Error::InDoubt { job, effect: "charge".to_owned() },
            Error::Lost {
                key: key(),
                token,
                why: LostCause::StoreRewound { current_token: token },
                current_token: None,
            },
        ] {
            assert!(!error.to_string().contains("`fencehold"), "{error}");
        }
    }

    #[test]
    fn a_time_is_shown_as_people_say_it() {
        let shown = |ms| Shown(Duration::from_millis(ms)).to_string();
        assert_eq!(
            [shown(0), shown(999), shown(1_000), shown(119_999), shown(120_000)],
            ["0 ms", "999 ms", "1.0 s", "119.9 s", "2 min"]
        );
    }
}
