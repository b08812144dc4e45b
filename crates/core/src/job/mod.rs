//! The rules of one job: what a store keeps of it, what can be asked, what follows.
//!
//! Nouns: a job's claim is a lease on the job, and every claim is an [`PastAttempt`] with a token of its own. An attempt ends
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

pub use attempt::{AttemptHistory, AttemptOutcome, PastAttempt};
pub use command::{
    AttemptProof, AttemptRenewal, AttemptWrite, ForcedState, JobCommand, JobCommandResult, JobRefusal,
    ReportedAttempt,
};
pub use decide::{JobDecision, JobStanding, decide};
pub use id::JobId;
pub use invariant::{JobViolation, check};
pub use name::{EffectName, JobKind, QueueName, ScheduleName, UniqueKey};
pub use queue::{ReadyQueue, WeightedTurns};
pub use record::{CancelRequest, Claim, CompensationState, JobNotes, JobOptions, JobRecord};
pub use state::{Due, JobState};
