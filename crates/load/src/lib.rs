//! Load on a store: clients that repeat their calls as fast as the store responds, and how long each call took.
//!
//! `fencehold bench` puts it on the user's own store, and `bench/` on stores and peers side by side. Deliberately absent:
//! peers, processes, printing.

#![allow(clippy::disallowed_methods, reason = "it measures real time")]

mod jobs;
mod latencies;
mod leases;
mod run;
mod target;

pub use jobs::{JobLives, enqueue};
pub use latencies::Latencies;
pub use leases::{AcquireRelease, BatchRenewals, hold_many, renew_all};
pub use run::{LoadClient, Measured, Stop, Timer, run, run_after, together};
pub use target::Target;

/// Why a measurement ended early.
pub type Failed = Box<dyn std::error::Error + Send + Sync>;
