//! What can go wrong, as few kinds that say what to do next. The store's own errors are richer; they are folded
//! into these here, in one table. The words for them are in `text`; how a lease is lost is in `lost`.

mod lost;
mod text;

use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::problem::Problem;
use fencehold_core::job::{JobId, JobRefusal, JobState, QueueName};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{BadInput, Key, Owner, Refusal, Task, Token};

use crate::holding::HoldTarget;

pub use fencehold_contract::problem::ErrorKind;
pub use lost::LostCause;
pub(crate) use text::ShownTime;

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
    /// Another holder has the key: wait, or come back later.
    #[non_exhaustive]
    Held {
        /// Which key; of several, the one that comes free first.
        key: Key,
        /// Who holds it.
        owner: Owner,
        /// What for.
        task: Option<Task>,
        /// How long the holder has left unless it renews.
        remaining: Duration,
        /// The holder's token.
        token: Token,
    },
    /// The lease on a key, or the claim of a job, is no longer this holder's: stop the work. Never try again under the
    /// same token.
    #[non_exhaustive]
    Lost {
        /// What was held.
        target: HoldTarget,
        /// The token under which it was held.
        token: Token,
        /// How it was lost.
        cause: LostCause,
        /// The newest token of the key or of the job, where it is known.
        current_token: Option<Token>,
    },
    /// The acquisition was granted, and had ended, before its response arrived.
    #[non_exhaustive]
    HoldIdUsed {
        /// Which key.
        key: Key,
        /// The token that it had, where the store remembers.
        token: Option<Token>,
        /// How it ended, where the store remembers.
        outcome: Option<LeaseOutcome>,
    },
    /// The time to wait was up, and the key did not come free for this caller.
    #[non_exhaustive]
    WaitTimedOut {
        /// What was waited for.
        keys: Vec<Key>,
        /// For how long.
        waited: Duration,
    },
    /// No response came, so it may have been carried out. The library cleans up after it. Sending it again is safe; a job, under
    /// the same [id](crate::JobBuilder::id) or [unique key](crate::JobBuilder::unique).
    #[non_exhaustive]
    OutcomeUnknown {
        /// What happened to the response.
        message: String,
    },
    /// The store has forgotten tokens that it once gave: it was restored from a backup, or failed over with loss.
    #[non_exhaustive]
    StoreRewound {
        /// Which key.
        key: Key,
        /// The token that was presented.
        token: Token,
        /// The largest that the store knows of.
        current_token: Token,
    },
    /// The store could not be reached, and nothing was done.
    #[non_exhaustive]
    Unavailable {
        /// What stands in the way.
        message: String,
    },
    /// This handle was closed: connect anew.
    Closed,
    /// The request can never succeed as it stands.
    BadInput(BadInput),
    /// This store cannot do that.
    #[non_exhaustive]
    Unsupported {
        /// Which store.
        store: String,
        /// What it cannot do.
        message: String,
    },
    /// The server does not know this caller: its access token is missing, wrong or revoked.
    #[non_exhaustive]
    Unauthorized {
        /// What is missing, and how to get it.
        message: String,
    },
    /// The server does not let this caller do this. The same request will not succeed later either.
    #[non_exhaustive]
    Forbidden {
        /// What is missing, and how to get it.
        message: String,
    },
    /// A limit of the store, or of the namespace's quota, is reached.
    #[non_exhaustive]
    LimitReached {
        /// What there is too much of.
        message: String,
        /// The limit.
        limit: u64,
    },
    /// The queue still has jobs or schedules.
    #[non_exhaustive]
    QueueNotEmpty {
        /// Which queue.
        queue: QueueName,
        /// What is in it.
        message: String,
    },
    /// What is there cannot be used as a store, and was left untouched.
    #[non_exhaustive]
    Unusable {
        /// Where.
        store: String,
        /// Why not.
        message: String,
    },
    /// There is no store there, and none was created.
    #[non_exhaustive]
    NoStore {
        /// Where.
        store: String,
    },
    /// Events between the cursor and the oldest one kept are gone.
    #[non_exhaustive]
    CursorTooOld {
        /// The cursor that was given.
        cursor: u64,
        /// The oldest event that is still kept.
        oldest_cursor: u64,
    },
    /// The rules refuse it for this key. Carries every [kind](ErrorKind) that has no variant of its own.
    #[non_exhaustive]
    Refused {
        /// Which key.
        key: Key,
        /// Which kind of refusal.
        kind: ErrorKind,
        /// The cause in a few words.
        message: String,
        /// How long the hold has left, where that is the reason.
        remaining: Option<Duration>,
        /// The holder's priority, where that is the reason.
        priority: Option<i16>,
    },
    /// There is no such job: it never was, or it was deleted, or pruned after its time.
    #[non_exhaustive]
    JobNotFound {
        /// Which.
        job_id: JobId,
    },
    /// The job has finished, and gave no result.
    #[non_exhaustive]
    JobFailed {
        /// Which.
        job_id: JobId,
        /// How it ended.
        state: JobState,
        /// What went wrong last.
        error: Option<String>,
    },
    /// The time to wait was up, and the job has not finished.
    #[non_exhaustive]
    JobNotFinished {
        /// Which.
        job_id: JobId,
        /// How it stands.
        state: JobState,
        /// For how long it was waited for.
        waited: Duration,
    },
    /// The unique key or the idempotency key was used before, for something else.
    #[non_exhaustive]
    Conflict {
        /// Which kind of key.
        field: String,
        /// The job that came first.
        job_id: JobId,
        /// What is not the same about it: its queue, kind or payload.
        differs: String,
    },
    /// The queue is being drained and takes no new jobs.
    #[non_exhaustive]
    QueueDraining {
        /// Which queue.
        queue: QueueName,
    },
    /// It is not known whether an effect of the job happened: the job has stopped, and a person must look.
    #[non_exhaustive]
    InDoubt {
        /// Which job.
        job_id: JobId,
        /// Which effect.
        effect: String,
    },
    /// The rules refuse it for this job. Carries every [kind](ErrorKind) that has no variant of its own.
    #[non_exhaustive]
    JobRefused {
        /// Which job.
        job_id: JobId,
        /// Which kind of refusal.
        kind: ErrorKind,
        /// The cause in a few words.
        message: String,
        /// How the job stands, where that is the reason.
        state: Option<JobState>,
        /// Who works on it, where that is the reason.
        owner: Option<Owner>,
        /// The token that was presented, where that is the reason.
        token: Option<Token>,
        /// The job's newest token, where it is known.
        current_token: Option<Token>,
        /// How long the attempt has left, where that is the reason.
        remaining: Option<Duration>,
        /// The priority of what runs, where that is the reason.
        priority: Option<i16>,
    },
}

impl Error {
    /// Its kind: the same name here, in HTTP and on the command line. Programs go by it where the variant is not enough.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let error = fencehold::Fencehold::connect("file:/no/such/store").await.unwrap_err();
    /// assert_eq!(error.kind(), fencehold::ErrorKind::NoStore);
    /// assert_eq!(error.kind().name(), "urn:fencehold:no-store");
    /// # }
    /// ```
    pub fn kind(&self) -> ErrorKind {
        match self {
            Error::Held { .. } => ErrorKind::Held,
            Error::Lost { cause: LostCause::WrongHoldId, .. } => ErrorKind::WrongHoldId,
            Error::Lost { cause: LostCause::StoreRewound { .. }, .. } | Error::StoreRewound { .. } => {
                ErrorKind::StoreRewound
            }
            Error::Lost { .. } => ErrorKind::Lost,
            Error::HoldIdUsed { .. } => ErrorKind::HoldIdUsed,
            Error::WaitTimedOut { .. } => ErrorKind::WaitTimedOut,
            Error::OutcomeUnknown { .. } => ErrorKind::OutcomeUnknown,
            Error::Unavailable { .. } | Error::Closed => ErrorKind::Unavailable,
            Error::BadInput(_) => ErrorKind::BadInput,
            Error::Unsupported { .. } => ErrorKind::Unsupported,
            Error::Unauthorized { .. } => ErrorKind::Unauthorized,
            Error::Forbidden { .. } => ErrorKind::Forbidden,
            Error::LimitReached { .. } => ErrorKind::LimitReached,
            Error::QueueNotEmpty { .. } => ErrorKind::QueueNotEmpty,
            Error::Unusable { .. } => ErrorKind::Unusable,
            Error::NoStore { .. } => ErrorKind::NoStore,
            Error::CursorTooOld { .. } => ErrorKind::CursorTooOld,
            Error::Refused { kind, .. } | Error::JobRefused { kind, .. } => *kind,
            Error::JobNotFound { .. } => ErrorKind::JobNotFound,
            Error::JobFailed { .. } => ErrorKind::JobFailed,
            Error::JobNotFinished { .. } => ErrorKind::JobNotFinished,
            Error::Conflict { .. } => ErrorKind::Conflict,
            Error::QueueDraining { .. } => ErrorKind::QueueDraining,
            Error::InDoubt { .. } => ErrorKind::InDoubt,
        }
    }

    /// Whether the same request, sent again as a new one, may succeed without any repair. A lease that was lost is
    /// never one of these: what ran under it must stop.
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
            Refusal::Held { owner, task, remaining_ms, token } => {
                Error::Held { key, owner, task, remaining: Duration::from_millis(remaining_ms), token }
            }
            Refusal::HoldIdUsed { token, outcome } => Error::HoldIdUsed { key, token, outcome },
            Refusal::StoreRewound { token, current_token } => {
                Error::StoreRewound { key, token, current_token }
            }
            Refusal::Lost { token, current_token, .. } => {
                let (target, cause) = (HoldTarget::Key(key), LostCause::from_refusal(&refusal));
                Error::Lost { target, token, cause, current_token: Some(current_token) }
            }
            Refusal::WrongHoldId { token } => {
                Error::lost(HoldTarget::Key(key), token, LostCause::WrongHoldId)
            }
            refusal => {
                let message = refusal.to_string();
                let problem = Problem::from(refusal);
                let remaining = problem.remaining_ms.map(Duration::from_millis);
                Error::Refused { key, kind: problem.kind, message, remaining, priority: problem.priority }
            }
        }
    }

    pub(crate) fn lost(target: HoldTarget, token: Token, cause: LostCause) -> Self {
        let current_token = cause.current_token();
        Error::Lost { target, token, cause, current_token }
    }

    /// What an attempt asks for is refused: where the attempt has ended, in whatever way, it must stop.
    pub(crate) fn attempt_refused(job_id: JobId, token: Token, refusal: JobRefusal) -> Self {
        match refusal {
            JobRefusal::JobNotFound | JobRefusal::Finished { .. } => {
                Error::lost(HoldTarget::Job(job_id), token, LostCause::from_job_refusal(&refusal))
            }
            refusal => Error::job_refused(job_id, refusal),
        }
    }

    pub(crate) fn job_refused(job_id: JobId, refusal: JobRefusal) -> Self {
        match refusal {
            JobRefusal::BadInput(bad) => Error::BadInput(bad),
            JobRefusal::JobNotFound => Error::JobNotFound { job_id },
            JobRefusal::Stale { token, .. }
            | JobRefusal::Over { token, .. }
            | JobRefusal::WrongHoldId { token }
            | JobRefusal::StoreRewound { token, .. } => {
                Error::lost(HoldTarget::Job(job_id), token, LostCause::from_job_refusal(&refusal))
            }
            JobRefusal::Conflict { field, job_id, differs } => Error::Conflict { field, job_id, differs },
            JobRefusal::QueueDraining { queue } => Error::QueueDraining { queue },
            JobRefusal::LimitReached { message, limit } => Error::LimitReached { message, limit },
            refusal => {
                let message = refusal.to_string();
                let problem = Problem::from(refusal);
                Error::JobRefused {
                    job_id,
                    kind: problem.kind,
                    message,
                    state: problem.state,
                    owner: problem.owner,
                    token: problem.token,
                    current_token: problem.current_token,
                    remaining: problem.remaining_ms.map(Duration::from_millis),
                    priority: problem.priority,
                }
            }
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
            StoreError::LimitReached { message, limit } => Error::LimitReached { message, limit },
            StoreError::QueueNotEmpty { queue, message } => Error::QueueNotEmpty { queue, message },
            StoreError::Unsupported { store, message } => Error::Unsupported { store, message },
            StoreError::CursorTooOld { cursor, oldest_cursor } => {
                Error::CursorTooOld { cursor, oldest_cursor }
            }
            StoreError::Unavailable { message } => Error::Unavailable { message },
            StoreError::OutcomeUnknown { message } => Error::OutcomeUnknown { message },
            StoreError::Unusable { store, message } => Error::Unusable { store, message },
            StoreError::Unauthorized { message } => Error::Unauthorized { message },
            StoreError::Forbidden { message } => Error::Forbidden { message },
            StoreError::NoStore { store } => Error::NoStore { store },
            // A kind that this version does not know is safest taken as an outcome that is not known.
            other => Error::OutcomeUnknown { message: other.to_string() },
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

    #[test]
    fn a_refusal_without_a_variant_keeps_its_kind_and_what_it_says() {
        let low = Error::refused(key(), Refusal::PriorityTooLow { priority: 7 });
        assert_eq!(low.kind(), ErrorKind::PriorityTooLow);
        assert!(matches!(low, Error::Refused { priority: Some(7), .. }), "{low}");
        let owner = Owner::new("w-1").expect("an owner");
        let running = JobRefusal::JobRunning { owner, token: Token::new(4), remaining_ms: 5_000 };
        let (text, job_id) = (running.to_string(), JobId::from_random(0, [7; 10]));
        let running = Error::job_refused(job_id, running);
        assert_eq!(running.kind(), ErrorKind::JobRunning);
        assert_eq!(running.to_string(), format!("job {job_id}: {text}"));
        let Error::JobRefused { owner: Some(owner), remaining, current_token, .. } = running else {
            panic!("{running:?}")
        };
        assert_eq!((owner.as_str(), remaining), ("w-1", Some(Duration::from_secs(5))));
        assert_eq!(current_token, Some(Token::new(4)));
        let wrong = Error::refused(key(), Refusal::WrongHoldId { token: Token::new(3) });
        assert!(matches!(wrong, Error::Lost { .. }) && wrong.kind() == ErrorKind::WrongHoldId, "{wrong}");
    }
}
