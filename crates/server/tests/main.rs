//! The server, over real sockets.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod api;
mod clocked;
mod conformance;
mod dashboard;
mod fuzz;
#[cfg(feature = "installed")]
mod generated_clients;
mod lost_responses;
mod metrics;
mod openapi;
mod plain_client;
mod races;
#[cfg(feature = "installed")]
mod schemathesis;
mod security;
mod shared_requests;
mod tls;
mod traces;
