//! What a store can answer instead of doing what was asked. Rich; the library folds it into what to do next.

use fencehold_core::job::QueueName;
use fencehold_core::{BadInput, Key, Refusal};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A store's refusal, or its inability.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[non_exhaustive]
pub enum StoreError {
    /// The request can never succeed as it stands.
    #[error(transparent)]
    BadInput(#[from] BadInput),
    /// The rules refuse it.
    #[error("{key}: {refusal}")]
    Refused {
        /// Which key.
        key: Key,
        /// Why.
        refusal: Refusal,
    },
    /// A bound of the store is reached. Trying again later may work.
    #[error("{message}: the limit of {limit} is reached")]
    LimitReached {
        /// What there is too much of.
        message: String,
        /// The limit.
        limit: u64,
    },
    /// The queue still has jobs or schedules.
    #[error(
        "queue {queue} is not empty: {message}; delete its jobs and remove its schedules first; finished jobs are \
         forgotten after their time, and an empty queue vanishes by itself"
    )]
    QueueNotEmpty {
        /// Which queue.
        queue: QueueName,
        /// What is in it.
        message: String,
    },
    /// This store cannot do that.
    #[error("the store {store} cannot {message}")]
    Unsupported {
        /// Which store.
        store: String,
        /// What it cannot do.
        message: String,
    },
    /// Events between the cursor and the oldest one kept are gone.
    #[error(
        "the cursor {cursor} is too old: the oldest event kept is {oldest_cursor}; list what is held and start from there"
    )]
    CursorTooOld {
        /// The cursor that was given.
        cursor: u64,
        /// The oldest event that is still kept.
        oldest_cursor: u64,
    },
    /// The store could not be reached in time, and nothing was done.
    #[error("the store is unavailable: {message}")]
    Unavailable {
        /// What stands in the way.
        message: String,
    },
    /// The request was sent and no answer came: it may have been carried out. Sending it again is safe.
    #[error("the outcome is unknown: {message}; the same request can safely be sent again")]
    OutcomeUnknown {
        /// What happened to the answer.
        message: String,
    },
    /// What is there cannot be used as a store, and was left untouched.
    #[error("{store} cannot be used as a store: {message}")]
    Unusable {
        /// Where.
        store: String,
        /// Why not.
        message: String,
    },
    /// The caller has no valid access token, or none that the store knows. Asking again in the same way will not help.
    #[error("not authorized: {message}")]
    Unauthorized {
        /// What is missing, and how to get it.
        message: String,
    },
    /// The caller may not do this. Asking again in the same way will not help.
    #[error("not allowed: {message}")]
    Forbidden {
        /// What is missing, and how to get it.
        message: String,
    },
    /// There is no store at this place, and none was to be created.
    #[error("there is no store in {store}; create one with `create=true` in its URL, if the path is right")]
    NoStore {
        /// Where.
        store: String,
    },
}

impl StoreError {
    /// A key that was refused, and why.
    pub fn refused(key: &Key, refusal: Refusal) -> Self {
        StoreError::Refused { key: key.clone(), refusal }
    }

    /// The same, of a request that was sent before and may have been carried out then: it cannot say that nothing was done.
    #[must_use]
    pub fn or_unknown(self) -> Self {
        match self {
            StoreError::Unavailable { message: why } => StoreError::OutcomeUnknown { message: why },
            // It could be used then.
            StoreError::Unusable { store: place, message: why } => {
                StoreError::OutcomeUnknown { message: format!("{place}: {why}") }
            }
            error => error,
        }
    }
}
