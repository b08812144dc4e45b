//! The command line as people use it: the real binary.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod bench;
mod demo;
mod disk;
mod documents;
mod earlier_data;
mod event_log;
mod far_stores;
#[cfg(all(feature = "file", feature = "remote", feature = "server"))]
mod faults;
mod golden;
mod job;
mod job_races;
mod json;
mod lease;
mod lost_writes;
mod missing_store;
mod one_at_a_time;
mod other_users;
mod owner_change;
mod pages;
#[cfg(feature = "postgres")]
mod postgres;
mod prompt_loss;
mod race;
mod readme;
mod run;
mod serve;
mod support;
mod terminal;
#[cfg(feature = "top")]
mod top;
#[cfg(feature = "postgres")]
mod upgrade;
mod usage;
mod watchdog;
mod work;
