//! The engine behind `memory:` and `file:`: the working state of every lease and job, and the one thread that changes it. PostgreSQL uses its rules of
//! jobs.
//!
//! [`Engine`] is a deterministic machine: requests and moments go in, answers and changes come out as data.
//! It does no I/O and reads no clock. [`Writer`] is the thread that feeds it, has the changes kept, and only
//! then lets the answers go.

#![allow(
    missing_docs,
    reason = "its callers are the stores beside it, and most of its parts are named by the rules in `fencehold-core`"
)]

mod acquire;
mod events;
mod handle;
mod inbox;
mod jobs;
mod memory;
mod persistence;
mod quota;
mod recent;
mod response;
mod state;
mod step;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod waiters;
mod wheel;
mod writer;

pub use handle::{Handle, ReplyFn};
pub use jobs::MemoryArchive;
pub use jobs::{Archive, ArchiveRange, ArchiveResult, ArchiveRow, StoredJobs, StoredQueue};
pub use jobs::{JobBody, JobChange, JobNote, JobSummary, StoredJob, StoredSchedule, StoredUnique};
pub use jobs::{Replay, ReplayInput, ReplayJob, ReplayOutput, digest, unique_digest};
pub use memory::MemoryStore;
pub use persistence::{
    Change, Changes, MemoryPersistence, OldEvents, PersistError, Persistence, StoredEvents, StoredLease,
    StoredNamespace, StoredState,
};
pub use response::{PendingResponse, ResponseSender, response_channel};
pub use state::{Engine, Granted, OutgoingResponse, ResponseBody as Said};
pub use writer::{Writer, WriterEnd};
