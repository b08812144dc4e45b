//! What can go wrong, as few kinds that say what to do next. The store's own errors are richer; they are folded
//! into these here, in one table.

use std::fmt;
use std::time::Duration;

use fencehold_core::lease::How;
use fencehold_core::{BadInput, Key, Owner, Reason, Refusal, Task, Token};
use fencehold_store::StoreError;

/// Why something was not done, and what to do next. Its text names the key, the holder and the way on; it never
/// contains a hold id.
///
/// ```
/// use fencehold::{Error, Fencehold};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Error> {
/// let fh = Fencehold::connect("memory:").await?;
/// let mine = fh.lease("reports/daily").task("run-42").acquire().await?;
///
/// let refused = fh.lease("reports/daily").try_acquire().await.unwrap_err();
/// assert!(matches!(&refused, Error::Held { task: Some(task), .. } if task.as_str() == "run-42"));
/// assert!(refused.is_retryable());
/// # mine.release().await
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// Somebody else holds the key: wait, or come back later.
    Held {
        /// Which key; of several, the one that comes free first.
        key: Key,
        /// Who holds it.
        owner: Owner,
        /// What for.
        task: Option<Task>,
        /// How long the holder has left unless it renews.
        expires_in: Duration,
        /// The holder's token.
        token: Token,
    },
    /// The lease is no longer this holder's: stop the work. Never to be tried again under the same lease.
    Lost {
        /// Which key.
        key: Key,
        /// The token under which it was held.
        token: Token,
        /// How it was lost.
        why: LostReason,
        /// The key's newest token, where it is known.
        current_token: Option<Token>,
    },
    /// The acquisition was granted, and over, before its answer could be picked up.
    Ended {
        /// Which key.
        key: Key,
        /// The token that it had, where the store remembers.
        token: Option<Token>,
        /// How it ended, where the store remembers.
        how: Option<How>,
    },
    /// The time to wait was up, and the key did not come free for this caller.
    TimedOut {
        /// What was waited for.
        keys: Vec<Key>,
        /// For how long.
        waited: Duration,
    },
    /// No answer came, so it may have been carried out. The library cleans up after it; asking again is safe.
    Unknown {
        /// What happened to the answer.
        why: String,
    },
    /// The store has forgotten tokens that it once gave: it was restored from a backup, or failed over with loss.
    StoreRewound {
        /// Which key.
        key: Key,
        /// The token that was shown.
        shown: Token,
        /// The largest that the store knows of.
        current: Token,
    },
    /// The store could not be reached, and nothing was done.
    Unavailable {
        /// What stands in the way.
        why: String,
    },
    /// The request can never succeed as it stands.
    BadInput(BadInput),
    /// This store cannot do that.
    Unsupported {
        /// Which store.
        store: String,
        /// What it cannot do.
        what: String,
    },
    /// A bound of the store is reached.
    Full {
        /// What there is too much of.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// What is there cannot be used as a store, and was left untouched.
    Unusable {
        /// Where.
        place: String,
        /// Why not.
        why: String,
    },
    /// Events between the cursor and the oldest one kept are gone.
    CursorTooOld {
        /// The cursor that was given.
        cursor: u64,
        /// The oldest event that is still kept.
        oldest: u64,
    },
    /// The rules refuse it, for a reason that none of the other kinds covers.
    Refused {
        /// Which key.
        key: Key,
        /// Why.
        refusal: Refusal,
    },
}

/// How a lease came to be no longer its holder's.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LostReason {
    /// Its own holder gave it back.
    Released,
    /// It was ended at the store, or reached the end that was set for it.
    Ended {
        /// How; `None` where the store no longer remembers.
        how: Option<How>,
        /// The key's newest token, where it is known.
        current_token: Option<Token>,
        /// Who ended it, where somebody did and the store has told so far.
        by: Option<Owner>,
        /// Why, where somebody did and the store has told so far.
        reason: Option<Reason>,
    },
    /// No renewal got through in time, so the holder must take it for lost.
    NotRenewed {
        /// What the last renewal came back with; `None`: this process did not run in time to send one.
        failure: Option<String>,
    },
    /// The store has forgotten this lease's token: it was rewound.
    StoreRewound {
        /// The largest token that the store knows of.
        current_token: Token,
    },
    /// The store knows this token under another hold id.
    WrongHold,
}

impl LostReason {
    /// The key's newest token, where it is known.
    pub fn current_token(&self) -> Option<Token> {
        match self {
            LostReason::Ended { current_token, .. } => *current_token,
            LostReason::StoreRewound { current_token } => Some(*current_token),
            LostReason::Released | LostReason::NotRenewed { .. } | LostReason::WrongHold => None,
        }
    }

    /// Ended in this way, by the holder's own reckoning.
    pub(crate) fn ended(how: How) -> Self {
        LostReason::Ended { how: Some(how), current_token: None, by: None, reason: None }
    }

    /// Why the store refuses what a holder asks under its token.
    pub(crate) fn from_refusal(refusal: &Refusal) -> Self {
        let ended = |how: &Option<How>, current_token| LostReason::Ended {
            how: *how,
            current_token,
            by: None,
            reason: None,
        };
        match refusal {
            // Only its own holder can have done that.
            Refusal::Lost { how: Some(How::Released), .. } => LostReason::Released,
            Refusal::Lost { how, current, .. } => ended(how, Some(*current)),
            Refusal::Ended { how, .. } => ended(how, None),
            Refusal::Held { token, .. } => ended(&None, Some(*token)),
            Refusal::StoreRewound { current, .. } => LostReason::StoreRewound { current_token: *current },
            Refusal::WrongHold { .. } => LostReason::WrongHold,
            _ => ended(&None, None),
        }
    }
}

impl Error {
    /// Whether asking again, as a new request, may succeed without anybody mending anything. A lease that was lost
    /// is never one of these: whatever ran under it must stop.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Held { .. }
                | Error::TimedOut { .. }
                | Error::Unknown { .. }
                | Error::Unavailable { .. }
                | Error::Full { .. }
        )
    }

    pub(crate) fn refused(key: Key, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Held { owner, task, expires_in_ms, token } => {
                Error::Held { key, owner, task, expires_in: Duration::from_millis(expires_in_ms), token }
            }
            Refusal::Ended { token, how } => Error::Ended { key, token, how },
            Refusal::StoreRewound { shown, current } => Error::StoreRewound { key, shown, current },
            Refusal::Lost { token, current, .. } => {
                let why = LostReason::from_refusal(&refusal);
                Error::Lost { key, token, why, current_token: Some(current) }
            }
            Refusal::WrongHold { token } => Error::lost(key, token, LostReason::WrongHold),
            refusal => Error::Refused { key, refusal },
        }
    }

    pub(crate) fn lost(key: Key, token: Token, why: LostReason) -> Self {
        let current_token = why.current_token();
        Error::Lost { key, token, why, current_token }
    }
}

impl From<BadInput> for Error {
    fn from(bad: BadInput) -> Self {
        Error::BadInput(bad)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::BadInput(bad) => Error::BadInput(bad),
            StoreError::Refused { key, refusal } => Error::refused(key, refusal),
            StoreError::Full { what, limit } => Error::Full { what, limit },
            StoreError::Unsupported { store, what } => Error::Unsupported { store, what },
            StoreError::CursorTooOld { cursor, oldest } => Error::CursorTooOld { cursor, oldest },
            StoreError::Unavailable { why } => Error::Unavailable { why },
            StoreError::Unknown { why } => Error::Unknown { why },
            StoreError::Unusable { place, why } => Error::Unusable { place, why },
            // A kind that this version does not know is safest taken as an outcome that is not known.
            other => Error::Unknown { why: other.to_string() },
        }
    }
}

impl std::error::Error for Error {}

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
                write!(f, "wait for it, or see `fencehold explain {key}`")
            }
            Error::Lost { key, token, why, current_token } => {
                write!(f, "the lease on {key} under token {token} is lost: {why}")?;
                if let Some(current) = current_token.filter(|current| current != token) {
                    write!(f, "; the key's token is now {current}")?;
                }
                write!(f, "; stop what ran under it, and acquire anew")
            }
            Error::Ended { key, token, how } => {
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
            Error::TimedOut { keys, waited } => {
                let waited = Shown(*waited);
                match keys.as_slice() {
                    [key] => write!(f, "{key} did not come free within {waited}; ")?,
                    keys => write!(f, "none of {} keys came free within {waited}; ", keys.len())?,
                }
                write!(f, "wait for longer, or see `fencehold lease ls`")
            }
            Error::Unknown { why } => {
                write!(f, "it is not known whether this was carried out: {why}; asking again is safe")
            }
            Error::StoreRewound { key, shown, current } => write!(
                f,
                "{key}: token {shown} was shown, but this store knows only {current}: it was rewound (a restored \
                 backup, or a failover with loss); stop the holders and run `fencehold store advance`"
            ),
            Error::Unavailable { why } => {
                write!(
                    f,
                    "the store is unavailable: {why}; nothing was done, try again or run `fencehold doctor`"
                )
            }
            Error::BadInput(bad) => bad.fmt(f),
            Error::Unsupported { store, what } => write!(f, "the store {store} cannot {what}"),
            Error::Full { what, limit } => {
                write!(f, "{what}: the limit of {limit} is reached; try again later")
            }
            Error::Unusable { place, why } => {
                write!(f, "{place} cannot be used as a store: {why}; it was left untouched")
            }
            Error::CursorTooOld { cursor, oldest } => write!(
                f,
                "the cursor {cursor} is too old: the oldest event kept is {oldest}; list what is held and go on from there"
            ),
            Error::Refused { key, refusal } => write!(f, "{key}: {refusal}"),
        }
    }
}

impl fmt::Display for LostReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LostReason::Released => f.write_str("its holder gave it back"),
            LostReason::Ended { how: None, .. } => {
                f.write_str("it is over, and the store no longer remembers how")
            }
            LostReason::Ended { how: Some(how), by, reason, .. } => {
                match how {
                    How::Expired => f.write_str("it expired")?,
                    How::AgedOut => f.write_str("it was held for its whole max age")?,
                    How::Yielded => f.write_str("it was asked to yield, and its time was up")?,
                    how => write!(f, "it was {how}")?,
                }
                if let Some(by) = by {
                    write!(f, " by {by}")?;
                }
                reason.as_ref().map_or(Ok(()), |reason| write!(f, " ({reason})"))
            }
            LostReason::NotRenewed { failure: Some(failure) } => {
                write!(f, "it could not be renewed in time: {failure}")
            }
            LostReason::NotRenewed { failure: None } => {
                f.write_str("it was not renewed in time: this process did not run for too long")
            }
            LostReason::StoreRewound { current_token } => write!(
                f,
                "the store was rewound and knows only token {current_token}; run `fencehold store advance`"
            ),
            LostReason::WrongHold => f.write_str("the store knows its token under another hold"),
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
    use super::*;

    fn key() -> Key {
        Key::new("k").expect("a key")
    }

    #[test]
    fn what_was_lost_is_never_worth_another_try() {
        let lost = Refusal::Lost { token: Token::new(3), how: Some(How::Revoked), current: Token::new(4) };
        for refusal in [lost, Refusal::WrongHold { token: Token::new(3) }] {
            let error = Error::from(StoreError::Refused { key: key(), refusal });
            assert!(matches!(error, Error::Lost { .. }) && !error.is_retryable(), "{error}");
        }
        let ended = Refusal::Ended { token: Some(Token::new(3)), how: Some(How::Expired) };
        assert!(!Error::refused(key(), ended).is_retryable());
        let rewound = Refusal::StoreRewound { shown: Token::new(9), current: Token::new(3) };
        assert!(!Error::refused(key(), rewound).is_retryable());
        assert!(Error::from(StoreError::Unavailable { why: "away".to_owned() }).is_retryable());
        assert!(Error::from(StoreError::Unknown { why: "cut off".to_owned() }).is_retryable());
    }

    #[test]
    fn an_error_says_what_happened_and_what_to_do() {
        let lost = Refusal::Lost { token: Token::new(3), how: Some(How::Expired), current: Token::new(5) };
        assert_eq!(
            Error::refused(key(), lost).to_string(),
            "the lease on k under token 3 is lost: it expired; the key's token is now 5; stop what ran under it, and \
             acquire anew"
        );
        let waited = Duration::from_millis(61_500);
        assert_eq!(
            Error::TimedOut { keys: vec![key()], waited }.to_string(),
            "k did not come free within 61.5 s; wait for longer, or see `fencehold lease ls`"
        );
        let full = Error::Full { what: "k: requests in line for this key".to_owned(), limit: 16_384 };
        assert_eq!(
            full.to_string(),
            "k: requests in line for this key: the limit of 16384 is reached; try again later"
        );
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
