//! The rules of Fencehold, pure.
//!
//! Nouns: a [`Key`] is held under a [`Hold`](lease::Hold), proved by a [`HoldId`], numbered by a [`Token`]
//! that only grows. A [`LeaseRecord`](lease::LeaseRecord) is what a store keeps of one key; a
//! [`LeaseStanding`](lease::LeaseStanding) is how that key stands by the store's own clock at this moment; and
//! [`lease::decide`] says what a [`LeaseCommand`](lease::LeaseCommand) does to it.
//!
//! Deliberately absent: clocks, randomness, I/O, async. Time arrives as an argument, so the same rules run in
//! every store, in a model checker and in a simulation.

#[cfg(not(target_os = "linux"))]
compile_error!("Fencehold runs on Linux only: it relies on the boot-time clock and on Linux process groups.");

#[macro_use]
pub mod wire;

pub mod duration;
mod error;
mod event;
mod hold;
mod invariant;
pub mod job;
mod key;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod retry;
pub mod stored;
mod time;
mod token;
pub mod ttl;

pub use error::{BadInput, Refusal};
pub use event::{BlockedAction, Event, EventData, blocked_elsewhere};
pub use hold::{HoldHash, HoldId};
pub use invariant::{LeaseViolation, check};
pub use key::{Key, Namespace, Owner, Reason, Task};
pub use time::Timestamp;
pub use token::Token;
