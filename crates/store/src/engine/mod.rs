//! The engine behind `memory:` and `file:`: the working state of every lease, and the one thread that changes it.
//!
//! [`Engine`] is a deterministic machine: requests and moments go in, answers and changes come out as data.
//! It does no I/O and reads no clock. [`Writer`] is the thread that feeds it, has the changes kept, and only
//! then lets the answers go.

mod events;
mod grant;
mod handle;
mod inbox;
mod jobs;
mod keep;
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

pub(crate) use handle::Handle;
#[cfg(feature = "file")]
pub(crate) use handle::Reply;
#[cfg(feature = "sim")]
pub(crate) use jobs::MemoryArchive;
#[cfg(any(feature = "file", feature = "postgres"))]
pub(crate) use jobs::{About, Body, JobChange, KeptJob, KeptSchedule, KeptUnique, Note};
#[cfg(feature = "file")]
pub(crate) use jobs::{Archive, KeptJobs, KeptQueue, Read, Row, Rows};
#[cfg(feature = "postgres")]
pub(crate) use jobs::{Brought, BroughtJob, Replay, Replayed, digest, unique_digest};
pub(crate) use keep::KeepInMemory;
#[cfg(feature = "file")]
pub(crate) use keep::{
    Change, Changes, Keep, KeepError, Kept, KeptEvents, KeptLease, KeptNamespace, OldEvents,
};
pub(crate) use state::Engine;
#[cfg(feature = "sim")]
pub(crate) use state::{Answered, Granted, Reply as Said};
#[cfg(feature = "file")]
pub(crate) use writer::Ended;
pub(crate) use writer::Writer;
