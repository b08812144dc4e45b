//! What can go wrong at a fence, as few kinds that say what to do next.

use std::fmt;
use std::time::Duration;

use fencehold_core::{BadInput, Key, Owner, Token};

use super::key_token::KeyToken;
use super::mark::Mark;
use crate::error::ShownTime;

/// Why a fence did not let something through, and what to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FenceError {
    /// The token is older than one that the fence has seen: another holder has had the key since. Stop the work;
    /// trying again under this token can never succeed.
    #[non_exhaustive]
    Stale {
        /// What the fence protects.
        resource: String,
        /// For which key.
        key: Key,
        /// The token that was shown.
        token: Token,
        /// The highest token that the fence has seen.
        highest_token: Token,
        /// Who raised the fence to it, where that was said.
        raised_by: Option<Owner>,
    },
    /// The token is the newest, but its lease was given back or ended by force. Stop the work; trying again under this token
    /// can never succeed.
    #[non_exhaustive]
    Ended {
        /// What the fence protects.
        resource: String,
        /// For which key.
        key: Key,
        /// The token that was shown.
        token: Token,
        /// How it ended.
        message: String,
    },
    /// The request can never succeed as it stands.
    BadInput(BadInput),
    /// Another process is in the middle of a step, and did not finish it in time. Nothing was done.
    #[non_exhaustive]
    Busy {
        /// What the fence protects.
        resource: String,
        /// The process that is in the way, where it is known.
        pid: Option<u32>,
        /// How long it was waited for.
        waited: Duration,
    },
    /// It may have been carried out or not. Asking again is safe: an append with the same idempotency key is not made twice.
    #[non_exhaustive]
    Unknown {
        /// What the fence protects.
        resource: String,
        /// What happened.
        message: String,
    },
    /// What is there cannot be fenced, and was left untouched.
    #[non_exhaustive]
    Unusable {
        /// Where.
        resource: String,
        /// Why not.
        message: String,
    },
}

impl FenceError {
    pub(super) fn unusable(resource: impl fmt::Display, message: impl fmt::Display) -> Self {
        FenceError::Unusable { resource: resource.to_string(), message: message.to_string() }
    }

    pub(super) fn unknown(resource: impl fmt::Display, message: impl fmt::Display) -> Self {
        FenceError::Unknown { resource: resource.to_string(), message: message.to_string() }
    }

    /// Whether asking again may succeed without any repair. A stale token is never one of these.
    pub fn is_retryable(&self) -> bool {
        matches!(self, FenceError::Busy { .. } | FenceError::Unknown { .. })
    }

    /// A pass below the mark. Said to the log too: a stale write that was blocked is a lease that was lost unnoticed.
    pub(crate) fn stale(resource: &str, pass: &KeyToken, mark: &Mark) -> Self {
        tracing::warn!(
            event = "stale_write_blocked",
            place = resource,
            key = %pass.key,
            stale_token = pass.token.get(),
            current_token = mark.token.get(),
            "a stale holder was refused"
        );
        FenceError::Stale {
            resource: resource.to_owned(),
            key: pass.key.clone(),
            token: pass.token,
            highest_token: mark.token,
            raised_by: mark.raised_by.clone(),
        }
    }
}

impl From<BadInput> for FenceError {
    fn from(bad: BadInput) -> Self {
        FenceError::BadInput(bad)
    }
}

impl std::error::Error for FenceError {}

impl fmt::Display for FenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FenceError::Stale { resource, key, token, highest_token, raised_by } => {
                write!(f, "{resource} refuses token {token} for {key}: it has seen {highest_token}")?;
                if let Some(owner) = raised_by {
                    write!(f, ", shown by {owner}")?;
                }
                write!(f, "; the hold under token {token} is over: stop what runs under it, and acquire anew")
            }
            FenceError::Ended { resource, message, .. } => {
                write!(f, "{resource} refuses it: {message}; stop what runs under it, and acquire anew")
            }
            FenceError::BadInput(bad) => bad.fmt(f),
            FenceError::Busy { resource, pid, waited } => {
                let waited = ShownTime(*waited);
                write!(f, "{resource} is in the middle of a write by ")?;
                match pid {
                    Some(pid) => write!(
                        f,
                        "pid {pid}, for {waited} now; nothing was done: if that process is stopped, continue it \
                         (kill -CONT {pid}) or end it, and try again"
                    ),
                    None => write!(f, "another process, for {waited} now; nothing was done, try again"),
                }
            }
            FenceError::Unknown { resource, message } => {
                write!(f, "{resource}: it is not known whether this was carried out: ")?;
                write!(f, "{message}; asking again is safe")
            }
            FenceError::Unusable { resource, message } => {
                write!(f, "{resource} cannot be fenced: {message}; it was left untouched")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stale_token_never_looks_retryable_and_says_what_to_do() {
        let pass = KeyToken::new(Key::new("reports/daily").unwrap(), Token::new(33));
        let mark = Mark { token: Token::new(34), raised_by: Some(Owner::new("host/7/ab").unwrap()) };
        let stale = FenceError::stale("out.jsonl", &pass, &mark);
        assert!(!stale.is_retryable());
        assert_eq!(
            stale.to_string(),
            "out.jsonl refuses token 33 for reports/daily: it has seen 34, shown by host/7/ab; the hold under token 33 \
             is over: stop what runs under it, and acquire anew"
        );
    }

    #[test]
    fn one_who_is_stopped_in_the_middle_is_named() {
        let busy =
            FenceError::Busy { resource: "f".to_owned(), pid: Some(7), waited: Duration::from_secs(10) };
        assert!(busy.is_retryable());
        assert_eq!(
            busy.to_string(),
            "f is in the middle of a write by pid 7, for 10.0 s now; nothing was done: if that process is stopped, \
             continue it (kill -CONT 7) or end it, and try again"
        );
    }
}
