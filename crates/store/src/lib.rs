//! Where Fencehold's leases and jobs live.
//!
//! [`LeaseStore`] and [`JobStore`] are the contracts; [`open`] gives the store that a [`StoreUrl`] names. `memory:` and `file:` run on
//! one engine: a single thread that decides with the pure rules of `fencehold-core`. The conformance suite (feature
//! `conformance`) is what every store passes.
//!
//! Deliberately absent: anything a caller would build on top (renewal, waiting across restarts, elections): that is
//! the library's.

#[macro_use(seeded)]
extern crate fencehold_core;

mod alone;
#[cfg(feature = "arena")]
pub mod arena;
mod asking;
mod asking_jobs;
mod capability;
pub mod clock;
mod closed;
#[cfg(feature = "conformance")]
pub mod conformance;
mod engine;
mod error;
#[cfg(feature = "etcd")]
pub mod etcd;
mod etcd_url;
#[cfg(feature = "file")]
pub mod file;
mod file_url;
mod hold_changes;
pub mod job;
mod lease;
mod locality;
pub mod measure;
mod memory;
#[cfg(feature = "object")]
pub mod object;
#[cfg(any(feature = "etcd", feature = "postgres", feature = "remote"))]
mod patience;
#[cfg(feature = "postgres")]
pub mod postgres;
mod postgres_url;
mod prefixes;
mod quota;
#[cfg(feature = "remote")]
pub mod remote;
mod remote_url;
mod retention;
#[cfg(any(feature = "object", feature = "remote"))]
mod runtime;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim;
mod url;
#[cfg(feature = "wire")]
pub mod wire;

pub use alone::alone;
pub use capability::Capabilities;
pub use error::StoreError;
pub use etcd_url::{EtcdTls, EtcdUrl};
pub use file_url::FileUrl;
pub use hold_changes::{HoldChange, HoldListener, Subscription};
pub use job::JobStore;
pub use lease::{
    AcquireRequest, Acquired, Advanced, Call, EndingView, EventPage, EventsRequest, HoldRef, HolderView,
    LeasePage, LeaseStore, LeaseView, ListRequest, NamespaceClosed, Renewed, RevokeRequest, RevokedLease,
    StoreStatus, Which,
};
pub use locality::{memory_file_system, network_file_system};
pub use memory::MemoryStore;
pub use postgres_url::{CompletedJobs, MigrateSchema, PostgresTls, PostgresUrl};
pub use prefixes::Prefixes;
pub use quota::{Limits, LimitsRequest, LimitsView, Used};
pub use remote_url::RemoteUrl;
pub use retention::KeepFinished;
pub use url::{StoreUrl, open};
