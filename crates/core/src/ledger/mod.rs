//! The ledger of a job: its side effects by name, each recorded at most once, and the order in which they are undone.
//!
//! An effect may be announced before it happens (an *intent*) and is recorded when it has (an *outcome*, with a value).
//! An attempt that finds an intent without an outcome cannot know whether the effect happened: it goes by the policy
//! that the intent was written with.

mod compensation;
mod effect;

pub use compensation::{next_to_undo, stands_undone};
pub use effect::{
    Compensation, Effect, EffectOutcome, EffectStart, EffectState, EffectStateKind, InDoubtPolicy, begin,
    idempotency_key, record, withdraws,
};
