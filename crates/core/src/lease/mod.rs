//! The rules of one lease: what a store keeps of a key, what can be asked, what follows.

mod command;
mod decide;
mod force;
mod holder;
mod record;

pub use command::{Acquire, Command, Grant, LeaseRenewal, Outcome, Preempt, Revoked, YieldRequest};
pub use decide::{Change, Decision, Standing, Term, decide};
pub use record::{Ending, History, Hold, LeaseOutcome, PendingYield, Record};
