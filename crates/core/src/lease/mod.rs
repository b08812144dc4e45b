//! The rules of one lease: what a store keeps of a key, what can be asked, what follows.

mod command;
mod decide;
mod force;
mod holder;
mod record;

pub use command::{
    Acquire, Grant, LeaseCommand, LeaseCommandResult, LeaseRenewal, PreemptRequest, Revoked, YieldRequest,
};
pub(crate) use decide::answer;
pub use decide::{DeadlineChange, Decision, HoldState, LeaseDecision, LeaseStanding, decide};
pub use record::{Ending, Hold, HoldHistory, LeaseOutcome, LeaseRecord, PendingYield};
