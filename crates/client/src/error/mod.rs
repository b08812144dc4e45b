//! What can go wrong, as few kinds that say what to do next. The store's own errors are richer; they are folded
//! into these here, in one table. The words for them are in `text`; how a lease is lost is in `lost`.

mod lost;
mod text;

use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_core::job::{self, JobId, QueueName};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{BadInput, Key, Owner, Refusal, Task, Token};

use crate::holding::Held;

pub use lost::LostCause;
pub(crate) use text::Shown;

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
        why: LostCause,
        /// The key's newest token, where it is known.
        current_token: Option<Token>,
    },
    /// The acquisition was granted, and over, before its answer could be picked up.
    HoldIdUsed {
        /// Which key.
        key: Key,
        /// The token that it had, where the store remembers.
        token: Option<Token>,
        /// How it ended, where the store remembers.
        how: Option<LeaseOutcome>,
    },
    /// The time to wait was up, and the key did not come free for this caller.
    WaitTimedOut {
        /// What was waited for.
        keys: Vec<Key>,
        /// For how long.
        waited: Duration,
    },
    /// No answer came, so it may have been carried out. The library cleans up after it; asking again is safe.
    OutcomeUnknown {
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
    /// The server does not know this caller, or does not let it do this. Asking again in the same way will not help.
    Denied {
        /// What is missing, and how to get it.
        why: String,
    },
    /// A bound of the store is reached.
    LimitReached {
        /// What there is too much of.
        what: String,
        /// The limit.
        limit: u64,
    },
    /// The queue still has jobs or schedules.
    QueueNotEmpty {
        /// Which queue.
        queue: job::QueueName,
        /// What is in it.
        holds: String,
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
    /// The claim of a job is no longer this worker's: stop the work. Never to be tried again under the same claim.
    ClaimLost {
        /// Which job.
        job: JobId,
        /// The token of this attempt.
        token: Token,
        /// How it was lost.
        why: LostCause,
        /// The job's newest token, where it is known.
        current_token: Option<Token>,
    },
    /// There is no such job: it never was, or it was deleted, or pruned after its time.
    JobNotFound {
        /// Which.
        job: JobId,
    },
    /// The job has come to its end, and gave no result.
    JobFailed {
        /// Which.
        job: JobId,
        /// How it ended.
        state: job::JobState,
        /// What went wrong last.
        error: Option<String>,
    },
    /// The time to wait was up, and the job has not come to its end.
    JobNotFinished {
        /// Which.
        job: JobId,
        /// How it stands.
        state: job::JobState,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// The unique key or the idempotency key was used before, for something else.
    Conflict {
        /// Which kind of key.
        what: String,
        /// The job that came first.
        first: JobId,
        /// What is not the same about it: its queue, kind or payload.
        differs: String,
    },
    /// The queue is being drained and takes no new jobs.
    QueueDraining {
        /// Which queue.
        queue: QueueName,
    },
    /// Nobody knows whether an effect of the job happened: it has stopped, and a person must look.
    InDoubt {
        /// Which job.
        job: JobId,
        /// Which effect.
        effect: String,
    },
    /// The rules refuse it for this job, for a reason that none of the other kinds covers.
    JobRefused {
        /// Which job.
        job: JobId,
        /// Why.
        refusal: job::Refusal,
    },
}

impl Error {
    /// Whether asking again, as a new request, may succeed without anybody mending anything. A lease that was lost
    /// is never one of these: whatever ran under it must stop.
    pub fn is_retryable(&self) -> bool {
        matches!(
            self,
            Error::Held { .. }
                | Error::WaitTimedOut { .. }
                | Error::OutcomeUnknown { .. }
                | Error::Unavailable { .. }
                | Error::LimitReached { .. }
        )
    }

    pub(crate) fn refused(key: Key, refusal: Refusal) -> Self {
        match refusal {
            Refusal::Held { owner, task, remaining_ms: expires_in_ms, token } => {
                Error::Held { key, owner, task, expires_in: Duration::from_millis(expires_in_ms), token }
            }
            Refusal::HoldIdUsed { token, outcome: how } => Error::HoldIdUsed { key, token, how },
            Refusal::StoreRewound { token: shown, current_token: current } => {
                Error::StoreRewound { key, shown, current }
            }
            Refusal::Lost { token, current_token: current, .. } => {
                let why = LostCause::from_refusal(&refusal);
                Error::Lost { key, token, why, current_token: Some(current) }
            }
            Refusal::WrongHoldId { token } => Error::lost(&Held::Key(key), token, LostCause::WrongHoldId),
            refusal => Error::Refused { key, refusal },
        }
    }

    pub(crate) fn lost(held: &Held, token: Token, why: LostCause) -> Self {
        let current_token = why.current_token();
        match held {
            Held::Key(key) => Error::Lost { key: key.clone(), token, why, current_token },
            Held::Job(job) => Error::ClaimLost { job: *job, token, why, current_token },
        }
    }

    /// What an attempt asks for is refused: where it is over, in whatever way, it must stop.
    pub(crate) fn attempt_refused(job: JobId, token: Token, refusal: job::Refusal) -> Self {
        match refusal {
            job::Refusal::JobNotFound | job::Refusal::Finished { .. } => {
                Error::lost(&Held::Job(job), token, LostCause::from_job_refusal(&refusal))
            }
            refusal => Error::job_refused(job, refusal),
        }
    }

    pub(crate) fn job_refused(job: JobId, refusal: job::Refusal) -> Self {
        match refusal {
            job::Refusal::BadInput(bad) => Error::BadInput(bad),
            job::Refusal::JobNotFound => Error::JobNotFound { job },
            job::Refusal::Stale { token, .. }
            | job::Refusal::Over { token, .. }
            | job::Refusal::WrongHoldId { token }
            | job::Refusal::StoreRewound { token, .. } => {
                Error::lost(&Held::Job(job), token, LostCause::from_job_refusal(&refusal))
            }
            job::Refusal::Conflict { field: what, job_id: first, differs } => {
                Error::Conflict { what, first, differs }
            }
            job::Refusal::QueueDraining { queue } => Error::QueueDraining { queue },
            job::Refusal::LimitReached { message: what, limit } => Error::LimitReached { what, limit },
            refusal => Error::JobRefused { job, refusal },
        }
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
            StoreError::LimitReached { message: what, limit } => Error::LimitReached { what, limit },
            StoreError::QueueNotEmpty { queue, message: holds } => Error::QueueNotEmpty { queue, holds },
            StoreError::Unsupported { store, message: what } => Error::Unsupported { store, what },
            StoreError::CursorTooOld { cursor, oldest_cursor: oldest } => {
                Error::CursorTooOld { cursor, oldest }
            }
            StoreError::Unavailable { message: why } => Error::Unavailable { why },
            StoreError::OutcomeUnknown { message: why } => Error::OutcomeUnknown { why },
            StoreError::Unusable { store: place, message: why } => Error::Unusable { place, why },
            StoreError::Forbidden { message: why } => Error::Denied { why },
            StoreError::NoStore { store: place } => {
                let why = "there is no store in it; if the path is right, create one with `Connect::create` or `?create=true` in its URL";
                Error::Unusable { place, why: why.to_owned() }
            }
            // A kind that this version does not know is safest taken as an outcome that is not known.
            other => Error::OutcomeUnknown { why: other.to_string() },
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> Key {
        Key::new("k").expect("a key")
    }

    #[test]
    fn what_was_lost_is_never_worth_another_try() {
        let lost = Refusal::Lost {
            token: Token::new(3),
            outcome: Some(LeaseOutcome::Revoked),
            by: None,
            reason: None,
            current_token: Token::new(4),
        };
        for refusal in [lost, Refusal::WrongHoldId { token: Token::new(3) }] {
            let error = Error::from(StoreError::Refused { key: key(), refusal });
            assert!(matches!(error, Error::Lost { .. }) && !error.is_retryable(), "{error}");
        }
        let ended = Refusal::HoldIdUsed { token: Some(Token::new(3)), outcome: Some(LeaseOutcome::Expired) };
        assert!(!Error::refused(key(), ended).is_retryable());
        let rewound = Refusal::StoreRewound { token: Token::new(9), current_token: Token::new(3) };
        assert!(!Error::refused(key(), rewound).is_retryable());
        assert!(Error::from(StoreError::Unavailable { message: "away".to_owned() }).is_retryable());
        assert!(Error::from(StoreError::OutcomeUnknown { message: "cut off".to_owned() }).is_retryable());
    }
}
