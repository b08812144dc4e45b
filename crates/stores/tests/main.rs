//! Stores as their URLs open them.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod retention;
