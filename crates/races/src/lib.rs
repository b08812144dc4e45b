//! Races, arranged on purpose.
//!
//! Nouns: a [`Race`] is a schedule in which two things that are each right come out wrong together, written as a script
//! of actors and steps. A `Gate` stands in front of the store and can hold, lose or double one chosen message. A
//! `Protocol` is what the actors speak: ours, or its *naive twin*, the well-known wrong algorithm, which runs under the
//! same script. A [`RaceReport`] is what became of it: the trace, the picture, the verdict.
//!
//! Deliberately absent: sleeping. What is late is held at the gate, and what runs out is run out by the store's clock.

mod actor;
mod environment;
mod fenced_resource;
mod gate;
mod job;
mod live_store;
mod naive;
mod ours;
mod protocol;
mod record;
mod report;
mod scenario;
mod script;
mod trace;

pub use environment::{Environment, EnvironmentError, Interrupt, Side};
pub use report::{RaceReport, RaceVerdict, play, play_all};
pub use scenario::{RACES, Race, find};
pub use trace::{TraceEntry, TraceEvent};
