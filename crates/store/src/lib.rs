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

#[cfg(feature = "etcd")]
pub mod etcd;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "object")]
pub mod object;
mod open;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "remote")]
pub mod remote;
#[cfg(feature = "sim")]
#[doc(hidden)]
pub mod sim;

pub use open::open;
