//! Leases with fencing tokens: every lock is a lease, and every lease has a fence.
//!
//! Nouns: a [`Fencehold`] is a handle on a store; [`lease`](Fencehold::lease) asks it for a key and gives a [`Lease`], a
//! guard that is renewed by a thread of the handle's own; the guard's [`token`](Lease::token) grows with every
//! acquisition of the key, for ever, so that whatever the lease protects can refuse a holder that woke up late. An
//! [`Election`] is a lease by another name; a semaphore is [`lease_any_of`](Fencehold::lease_any_of) of its slots.
//!
//! A job stands in a [`queue`](Fencehold::queue); a [`Worker`] claims it, which is a lease on the job, and has a handler
//! run it; what the handler does [`once`](Job::once) is recorded under the attempt's token. An [`Operation`] is what a
//! request handler does once for its idempotency key.
//!
//! ```
//! use std::time::Duration;
//! use fencehold::Fencehold;
//!
//! # async fn build_report(token: fencehold::Token) -> u64 { token.get() }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), fencehold::Error> {
//! let fh = Fencehold::connect("memory:").await?; // or file:DIR
//!
//! let lease = fh.lease("reports/daily").task("run-42").ttl(Duration::from_secs(30)).acquire().await?;
//! let report = lease.run(build_report(lease.token())).await?; // stops the future if the lease is lost
//! lease.release().await?;
//! # assert_eq!(report, 1);
//! # Ok(())
//! # }
//! ```
//!
//! It needs no runtime of its own and works on every executor. [`blocking`] has the same verbs for code without one.
//!
//! Deliberately absent: rules (those are `fencehold-core`'s, decided at the store), and anything that would make a
//! client's clock matter for more than knowing when to stop.
//!
//! # Features
//!
//! | feature | gives |
//! |---|---|
//! | `file` (default) | the store `file:DIR`, in SQLite |
//! | `postgres` | the store `postgres://…`; `tokio-postgres` comes with it |
//! | `tokio-postgres`, `sqlx`, `diesel-async` | your own [transactions](transaction) in PostgreSQL by that driver: enqueue, fence, have effects once, complete |
//! | `object` | the stores `s3://…`, `gs://…`, `az://…`, and the fence for objects |
//! | `etcd` | the store `etcd://…` |
//! | `remote` | the store `http://…`: a Fencehold server |
//! | `tower` | layers around handlers ([`Worker::layer`]), and the fence for HTTP services ([`fence`]) |
//! | `metrics` | counters and histograms through the facade of the crate [`metrics`](https://docs.rs/metrics), under the names of a server |
//! | `tokio-util` | a `CancellationToken` of a lease or a job |
//! | `uuid` | `JobId` from and to `uuid::Uuid` |
//!
//! The store `memory:`, for tests, is always there.

#[macro_use]
mod forward;

mod acquisition;
pub mod blocking;
mod breaker;
#[cfg(feature = "tokio-util")]
mod cancellation;
mod connect;
mod connection;
mod election;
mod error;
pub mod fence;
mod guard;
pub mod handler;
mod holding;
pub mod job;
mod jobs;
mod json;
mod lease;
mod metrics;
mod once;
mod operation;
mod process_exit;
mod queue;
mod random;
mod renewal;
mod report;
mod retry;
mod schedule;
pub mod testing;
mod time;
mod trace;
pub mod transaction;
mod ttl_advice;
mod typed;
mod wake;
mod watch;
mod worker;

pub use breaker::{CircuitBreakerPolicy, CircuitBreakerState, CircuitBreakerStats};
pub use connect::{Fencehold, FenceholdBuilder};
pub use election::{Election, Leader, LeaderView, Observer};
pub use error::{Error, ErrorKind, LostCause};
pub use guard::Lease;
pub use handler::State;
pub use holding::HoldTarget;
pub use job::{InDoubtPolicy, IntoOutcome, Job, JobError, JobId, Outcome, StopReason};
pub use jobs::Jobs;
pub use lease::LeaseBuilder;
pub use once::OnceEffect;
pub use operation::{Operation, OperationError, OperationStatus, Operations};
pub use queue::{JobBuilder, JobQueue};
pub use retry::RetryBudget;
pub use schedule::Schedule;
pub use ttl_advice::TtlAdvice;
pub use typed::{JobHandle, TypedJob, Untyped};
pub use watch::{LeaseSnapshot, LeaseState, LeaseWatch, YieldRequest};
pub use worker::{Drained, EndedAttempt, RunningWorker, Worker, WorkerEvent, WorkerStats};

pub use fencehold_core::lease::LeaseOutcome;
pub use fencehold_core::{
    BadInput, BlockedAction, Event, EventData, HoldId, Key, Namespace, Owner, Reason, Task, Token, limits,
};

/// Where time comes from.
pub mod clock {
    pub use fencehold_contract::clock::{Clock, ManualClock, SystemClock};
    pub use fencehold_core::Timestamp;
}

/// The store beneath: its contract, for what a [`Fencehold`] does not wrap.
pub mod store {
    pub use fencehold_contract::{
        AcquireLeaseRequest, AcquiredLease, AdvancedStore, BlockedWrite, CallContext, Capabilities,
        ContentionList, EndingView, EventPage, HoldRef, HolderView, JobStore, KeyContention, LeasePage,
        LeaseStats, LeaseStatsRequest, LeaseStore, LeaseView, ListContentionRequest, ListEventsRequest,
        ListLeasesRequest, RecordedBlockedWrite, RefusedAcquire, ReleasedLease, RenewLeaseBatchResponse,
        RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError, StoreStatus, StoreUrl,
    };
    pub use fencehold_engine::MemoryStore;
    /// A directory on this machine.
    #[cfg(feature = "file")]
    pub mod file {
        pub use fencehold_store_file::{CheckReport, FileOptions, FileStore, backup, check, restore};
    }
    pub use fencehold_stores::open;
}

/// The examples of the README are doc tests too. Only those who run the doc tests need the page: it is not in the
/// packed crate.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// So are those of the page on fences, some of which need features.
#[cfg(all(doctest, feature = "tower", feature = "object"))]
#[doc = include_str!("../../../docs/fencing.md")]
struct Fencing;

/// And those of the page on PostgreSQL.
#[cfg(all(doctest, feature = "postgres", feature = "sqlx"))]
#[doc = include_str!("../../../docs/postgres.md")]
struct Postgres;

/// And those of the pages that answer one question each.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/ttl.md")]
#[doc = include_str!("../../../docs/workers.md")]
#[doc = include_str!("../../../docs/preemption.md")]
#[doc = include_str!("../../../docs/elections.md")]
struct Pages;

/// And those of the page on exactly once, which has drivers of databases.
#[cfg(all(doctest, feature = "sqlx"))]
#[doc = include_str!("../../../docs/exactly_once.md")]
struct ExactlyOnce;
