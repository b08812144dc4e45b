//! The store `file:`.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod file_damage;
mod file_failing_disk;
mod file_lazy_jobs;
mod file_modes;
mod file_other_users;
mod file_owner;
mod file_sharing;
mod file_socket;
mod file_stopped;
mod same_second;
mod support;
