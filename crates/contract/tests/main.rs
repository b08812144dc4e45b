//! The contract, its URLs and times as text.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod fuzz;
