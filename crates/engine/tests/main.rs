//! The engine behind `memory:` and `file:`.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod many_waiters;
mod memory;
mod model;
