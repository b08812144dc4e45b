//! The server, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod clocked;
mod conformance;
mod doors;
mod fuzz;
mod lost;
mod metrics;
mod plain;
mod races;
#[cfg(feature = "installed")]
mod schemathesis;
mod security;
mod tls;
mod traces;
