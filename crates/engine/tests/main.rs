//! The engine behind `memory:` and `file:`.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod long_line;
mod memory;
mod model;
