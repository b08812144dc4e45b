//! What a store of leases and jobs is, whatever it is kept in.
//!
//! [`LeaseStore`] and [`JobStore`] are the contracts that every store implements, with the requests that they take and the
//! answers that they give. [`operation`] has each call as data, for stores that carry it elsewhere, and the checks of what
//! a caller sends. [`http`] lists the same operations as a server answers them, with their paths and scopes; [`problem`] is
//! every error as it travels. [`StoreUrl`] says which store, and where.
//!
//! Deliberately absent: any store, and anything that a caller would build on top of one.

#[macro_use(wire)]
extern crate fencehold_core;

mod capability;
pub mod clock;
pub mod closed;
pub mod contention;
mod error;
mod event;
mod file_system;
pub mod hold_changes;
pub mod http;
pub mod job;
pub mod json;
mod lease;
pub mod lease_records;
pub mod metrics;
pub mod operation;
mod outside_runtime;
mod prefixes;
pub mod problem;
pub mod quota;
mod retention;
pub mod stored;
pub mod url;

pub use capability::Capabilities;
pub use contention::{ContentionList, KeyContention, ListContentionRequest, RefusedAcquire};
pub use error::StoreError;
pub use event::FlatEvent;
pub use file_system::{memory_file_system, network_file_system};
pub use hold_changes::{HoldChange, HoldListener, Subscription};
pub use job::JobStore;
pub use lease::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, BlockedWrite, CallContext, ClosedNamespace,
    EndingView, EventPage, HoldRef, HolderView, LeasePage, LeaseStats, LeaseStatsRequest, LeaseStatsStep,
    LeaseStore, LeaseView, ListEventsRequest, ListLeasesRequest, RecordedBlockedWrite, ReleasedLease,
    RenewLeaseBatchResponse, RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreStatus,
};
pub use outside_runtime::outside_runtime;
pub use prefixes::Prefixes;
pub use quota::{Quota, QuotaRequest, QuotaUsage, QuotaView};
pub use retention::KeepFinished;
pub use url::{
    CompletedJobs, EtcdTls, EtcdUrl, FileUrl, MigrateSchema, ObjectOptions, ObjectUrl, PostgresTls,
    PostgresUrl, RemoteUrl, Scheme, StoreUrl,
};
