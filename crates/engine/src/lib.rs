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

mod events;
mod grant;
mod handle;
mod inbox;
mod jobs;
mod keep;
mod memory;
mod pending;
mod quota;
mod retold;
mod state;
mod step;
mod table;
#[cfg(test)]
mod tests;
mod view;
mod waiters;
mod wheel;
mod writer;

pub use handle::Handle;
pub use handle::Reply;
pub use jobs::MemoryArchive;
pub use jobs::{About, Body, JobChange, KeptJob, KeptSchedule, KeptUnique, Note};
pub use jobs::{Archive, KeptJobs, KeptQueue, Read, Row, Rows};
pub use jobs::{Brought, BroughtJob, Replay, Replayed, digest, unique_digest};
pub use keep::KeepInMemory;
pub use keep::{Change, Changes, Keep, KeepError, Kept, KeptEvents, KeptLease, KeptNamespace, OldEvents};
pub use memory::MemoryStore;
pub use pending::{PendingResponse, ResponseSender, response_channel};
pub use state::Engine;
pub use state::{Answered, Granted, Reply as Said};
pub use writer::Ended;
pub use writer::Writer;
