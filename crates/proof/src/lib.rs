//! What shows that Fencehold keeps its promises, and is never shipped.
//!
//! [`model`]: every state of the lease protocol, of a job's life and of the takeover, within bounds. [`sim`]: the engine and the `file:` store under
//! virtual time and seeded trouble, watched by an auditor that knows nothing of them. [`history`]: what real processes saw, and whether it can
//! be true. `seeded` (a feature): each deliberate mistake, and what notices it.

#[macro_use(seeded)]
extern crate fencehold_core;

pub mod history;
pub mod model;
#[cfg(feature = "bugs")]
pub mod seeded;
pub mod sim;
mod simulated;
