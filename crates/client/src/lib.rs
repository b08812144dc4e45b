#![doc = include_str!("../README.md")]
//!
//! # Where to begin
//!
//! | you want to | begin with |
//! |---|---|
//! | hold a key | [`Fencehold::lease`], which gives a [`Lease`]; one of several keys: [`Fencehold::lease_any_of`] |
//! | elect a leader | [`Fencehold::election`], [`Election::lead`] |
//! | refuse a stale holder where it writes | [`Lease::token`], [`fence`], [`Lease::fence_in`] |
//! | enqueue, and wait for a result | [`Fencehold::queue`], [`TypedJob`], [`Fencehold::jobs`] |
//! | run jobs | [`Fencehold::worker`], [`handler`], [`Job`] |
//! | have an effect once | [`Job::once`]; in your own transaction: [`transaction`] |
//! | answer a request once | [`Fencehold::operations`], [`Operations::once`] |
//! | test | [`testing`] |
//! | do without an executor | [`blocking`] |
//!
//! A [`Fencehold`] is a handle on a store: clone it. It needs no runtime of its own and works on every executor. Every error is an [`Error`], which says what happened, to
//! which key, who holds it and what to do.
//!
//! Deliberately absent: rules (those are `fencehold-core`'s, decided at the store), and anything that would make a
//! client's clock matter for more than knowing when to stop.

#![cfg_attr(docsrs, feature(doc_cfg))]
#![warn(missing_debug_implementations)]

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
mod selected_jobs;
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
pub use election::{Election, Leader, LeaderView, LeadershipEnd, Observer};
pub use error::{Error, ErrorKind, LostCause};
pub use guard::Lease;
pub use handler::State;
pub use holding::HoldTarget;
pub use job::{InDoubtPolicy, IntoOutcome, Job, JobError, JobId, Outcome, StopReason};
pub use jobs::Jobs;
pub use lease::LeaseBuilder;
pub use once::OnceEffect;
pub use operation::{Operation, OperationError, OperationStatus, Operations};
pub use queue::{EnqueuedBatch, JobBuilder, JobQueue};
pub use retry::RetryBudget;
pub use schedule::Schedule;
pub use selected_jobs::{ChangedJobs, SelectedJob, SelectedJobs, SelectedJobsError};
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
    pub use fencehold_contract::metrics::StoreMetrics;
    pub use fencehold_contract::{
        AcquireLeaseRequest, AcquiredLease, AdvancedStore, BlockedWrite, CallContext, Capabilities,
        ContentionList, EndingView, EventPage, HoldChange, HoldListener, HoldRef, HolderView, JobStore,
        KeyContention, LeasePage, LeaseStats, LeaseStatsRequest, LeaseStatsStep, LeaseStore, LeaseView,
        ListContentionRequest, ListEventsRequest, ListLeasesRequest, Quota, QuotaRequest, QuotaUsage,
        QuotaView, RecordedBlockedWrite, RefusedAcquire, ReleasedLease, RenewLeaseBatchResponse,
        RevokeLeasesRequest, RevokeTarget, RevokedLease, StoreError, StoreStatus, StoreUrl, Subscription,
    };
    pub use fencehold_core::Refusal;
    pub use fencehold_core::job::JobRefusal;
    /// What a [`JobStore`] is asked, and what it answers.
    pub mod job {
        pub use fencehold_contract::job::{
            AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, BegunOperation,
            ChangeJobBatchResponse, ChangeJobResult, ChangeJobsRequest, ClaimJobsRequest, ClaimedJob,
            ClaimedJobs, EffectResolution, JobAction, LedgerEntry, LedgerResponse, NewJob, OperationStatus,
            QueueList, QueueWeight, RenewAttemptBatchResponse, Report, ResolveEffectRequest,
            SetQueueModeRequest, Unique, WaitRequest, When,
        };
    }
    /// What a [`StoreUrl`] is made of.
    pub mod url {
        pub use fencehold_contract::{
            CompletedJobs, EtcdTls, EtcdUrl, FileUrl, KeepFinished, MigrateSchema, ObjectOptions, ObjectUrl,
            PostgresTls, PostgresUrl, RemoteUrl, Scheme,
        };
    }
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

/// And those of the pages on exactly once, which have drivers of databases.
#[cfg(all(doctest, feature = "sqlx"))]
#[doc = include_str!("../../../docs/exactly_once.md")]
#[doc = include_str!("../../../docs/guide/exactly_once.md")]
struct ExactlyOnce;

/// And those of the guide.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/guide/leases.md")]
#[doc = include_str!("../../../docs/guide/jobs.md")]
#[doc = include_str!("../../../docs/guide/testing.md")]
struct Guide;
