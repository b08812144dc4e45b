//! The engine behind `memory:` and `file:`: the working state of every lease, and the one thread that changes it.
//!
//! [`Engine`] is a deterministic machine: requests and moments go in, answers and changes come out as data.
//! It does no I/O and reads no clock. [`Writer`] is the thread that feeds it, has the changes kept, and only
//! then lets the answers go.

mod ask;
mod check;
mod claim;
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

pub(crate) use ask::{Answer, Ask};
#[cfg(any(feature = "etcd", feature = "object", feature = "postgres"))]
pub(crate) use check::{check_acquire, check_batch, check_limit, check_prefix};
pub(crate) use claim::Claim;
#[cfg(feature = "file")]
pub(crate) use claim::Unclaimed;
pub(crate) use handle::Handle;
#[cfg(feature = "file")]
pub(crate) use handle::Reply;
#[cfg(feature = "sim")]
pub(crate) use jobs::MemoryArchive;
#[cfg(feature = "remote")]
pub(crate) use jobs::unfit;
#[cfg(any(feature = "file", feature = "postgres"))]
pub(crate) use jobs::{About, Body, JobChange, KeptJob, KeptSchedule, KeptUnique, Note};
#[cfg(feature = "file")]
pub(crate) use jobs::{Archive, KeptJobs, KeptQueue, Read, Row, Rows};
#[cfg(feature = "postgres")]
pub(crate) use jobs::{Brought, BroughtJob, Replay, Replayed, check_job, check_word, digest, unique_digest};
pub(crate) use jobs::{JobAnswer, JobAsk};
pub(crate) use keep::KeepInMemory;
#[cfg(feature = "file")]
pub(crate) use keep::{
    Change, Changes, Keep, KeepError, Kept, KeptEvents, KeptLease, KeptNamespace, OldEvents,
};
pub(crate) use state::Engine;
#[cfg(feature = "sim")]
pub(crate) use state::{Answered, Granted, Reply as Said};
#[cfg(feature = "etcd")]
pub(crate) use view::view_ending;
#[cfg(feature = "file")]
pub(crate) use writer::Ended;
pub(crate) use writer::Writer;

/// The shortest ttl of stores that run on the engine.
pub(crate) const TTL_MS_MIN: u64 = fencehold_core::limits::TTL_MS_MIN;
