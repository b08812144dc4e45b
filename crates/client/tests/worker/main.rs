//! A worker runs jobs, says what came of them, and knows when they are no longer its own.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

#[path = "../gate/mod.rs"]
mod gate;

mod run;
mod stop;
mod store;
