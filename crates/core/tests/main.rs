//! The rules, and what every invariant refuses.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod invariants;
mod job_claim;
mod job_force;
mod job_invariants;
mod job_late_reports;
mod job_properties;
mod job_report;
mod lease_acquire;
mod lease_force;
mod lease_hold_id;
mod lease_preempt;
mod lease_properties;
mod lease_renew_release;
mod ledger;
mod messages;
mod schedule_clock_changes;
mod schedule_lines;
mod schedule_properties;
mod support;
