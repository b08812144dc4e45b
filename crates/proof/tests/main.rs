//! The proofs hold, and find what they are for.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod model;
mod sim;
