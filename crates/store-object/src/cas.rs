//! The little that is asked of object storage: read, write on a condition, list.
//!
//! Deliberately absent: retries. A conditional write that is sent twice can meet its own first sending and call it
//! another's, so only code that knows what was in the write may send it again.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use fencehold_contract::StoreError;

/// Which writing of an object this is. Two are equal only if no write came between them; nothing else is to be read out
/// of it: on some clouds a later one is the smaller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectVersion(pub String);

/// An object as it was read.
#[derive(Clone, PartialEq, Eq)]
pub struct ReadObject {
    /// What is in it.
    pub body: Vec<u8>,
    /// Which writing of it this is.
    pub version: ObjectVersion,
}

impl fmt::Debug for ReadObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadObject")
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

/// What became of a conditional write.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WriteResult {
    /// It was carried out; the object has this version now.
    Won(ObjectVersion),
    /// Its condition did not hold, and nothing was written.
    Lost,
    /// No answer that can be trusted: it may have been carried out, or may still be.
    Unknown {
        /// What happened to the answer.
        why: String,
    },
}

/// Why nothing was done.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CasError {
    /// It could not be reached, or is overloaded: later it may work.
    Unavailable {
        /// What stands in the way.
        why: String,
    },
    /// It refuses: wrong credentials, no such bucket, no permission.
    Refused {
        /// What it said.
        why: String,
    },
}

impl CasError {
    /// What it means for a store at this place.
    pub fn into_store_error(self, place: &str) -> StoreError {
        match self {
            CasError::Unavailable { why } => StoreError::Unavailable { message: why },
            CasError::Refused { why } => StoreError::Unusable { store: place.to_owned(), message: why },
        }
    }
}

/// Object storage that writes on a condition, or not at all. Every call ends within its limit.
#[async_trait]
pub trait Cas: fmt::Debug + Send + Sync {
    /// How many requests were sent so far, where that can be known.
    fn requests_sent(&self) -> Option<u64> {
        None
    }

    /// The object of this name, if there is one.
    async fn read(&self, name: &str, limit: Duration) -> Result<Option<ReadObject>, CasError>;

    /// Writes an object that must still have this version; `None`: that must not exist yet.
    async fn write(
        &self,
        name: &str,
        version: Option<&ObjectVersion>,
        body: Vec<u8>,
        limit: Duration,
    ) -> Result<WriteResult, CasError>;

    /// The names of all objects in a folder and below, in no particular order.
    async fn list(&self, folder: &str, limit: Duration) -> Result<Vec<String>, CasError>;

    /// An error if the bucket is known to be missing: where an object is not found, the whole bucket may be.
    async fn reach(&self, limit: Duration) -> Result<(), CasError>;

    /// Removes a scratch object. A lease is never removed.
    async fn remove(&self, name: &str, limit: Duration) -> Result<(), CasError>;
}
