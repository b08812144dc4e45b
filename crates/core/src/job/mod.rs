//! The rules of one job: what a store keeps of it, what can be asked, what follows.
//!
//! Nouns: a job's claim is a lease on the job, and every claim is an [`Attempt`] with a token of its own. An attempt ends
//! by its holder's word, or by running out. A claim that runs out is a *crash*; an error that the holder reports, or an
//! attempt over its time limit, is a *failure*; each has its own limit.
//!
//! A holder whose claim ran out may still report its outcome for as long as no other attempt has had the job since: its
//! token is then still the newest. That is *late*, not *stale*.

mod attempt;
mod command;
mod decide;
mod force;
mod id;
mod invariant;
mod name;
mod queue;
mod record;
mod report;
pub mod schedule;
mod state;

pub use attempt::{Attempt, AttemptOutcome, Trail};
pub use command::{AttemptRenewal, By, Command, Outcome, Refusal, ReportedAttempt, Written};
pub use decide::{Decision, Standing, decide};
pub use id::JobId;
pub use invariant::{Violation, check};
pub use name::{EffectName, JobKind, QueueName, ScheduleName, UniqueKey};
pub use queue::{Ready, Turns};
pub use record::{Cancel, Claim, CompensationState, JobOptions, Notes, Record};
pub use state::{Due, JobState};
