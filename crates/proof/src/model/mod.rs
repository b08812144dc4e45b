//! Exhaustive models: every order of every step, within bounds.
//!
//! Three of them. [`lease`] runs the product's own rules, `fencehold_core::lease::decide`, between clients that crash,
//! stall and repeat themselves, a network that loses and doubles, a sweeper, an operator and a store that restarts.
//! [`job`] does the same for the claims, the ledger and the end of one job. [`takeover`] is the ownership of a `file:`
//! directory by epoch. Each keeps its own account of what was promised (the
//! ledger) and never asks the rules whether they are right.
//!
//! A check is worth what it can find: each model also runs with a safeguard taken away, and must then find the damage.

pub mod job;
pub mod lease;
pub mod suite;
pub mod takeover;

use std::collections::BTreeMap;
use std::fmt;

use stateright::{Checker, Model, Property};

/// What became of one model.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelResult {
    /// Which model, with which bounds.
    pub name: String,
    /// How many different states there were.
    pub states: usize,
    /// Whether all of them were visited.
    pub exhaustive: bool,
    /// Properties that do not hold, each with the steps that lead there.
    pub broken: BTreeMap<&'static str, Vec<String>>,
    /// The properties that must not hold, because a safeguard was taken away.
    pub must_break: &'static [&'static str],
}

impl ModelResult {
    /// Whether exactly those properties are broken that must be.
    pub fn as_it_should_be(&self) -> bool {
        self.broken.keys().copied().eq(self.must_break.iter().copied())
    }
}

impl fmt::Display for ModelResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let extent = if self.exhaustive { "all" } else { "the first" };
        writeln!(f, "{}: {extent} {} states", self.name, self.states)?;
        for (property, steps) in &self.broken {
            let meant = if self.must_break.contains(property) { "broken, as it must be" } else { "BROKEN" };
            writeln!(f, "  {meant}: {property}")?;
            for (nth, step) in steps.iter().enumerate() {
                writeln!(f, "    {:>2}. {step}", nth + 1)?;
            }
        }
        for missing in self.must_break.iter().filter(|property| !self.broken.contains_key(*property)) {
            writeln!(f, "  NOT FOUND, although it must be: {missing}")?;
        }
        Ok(())
    }
}

type Condition<M> = fn(&M, &<M as Model>::State) -> bool;

/// What must hold in every state, by name.
fn always<M: Model, const N: usize>(properties: [(&'static str, Condition<M>); N]) -> Vec<Property<M>> {
    properties.map(|(name, holds)| Property::always(name, holds)).into()
}

/// Visits states breadth first, up to about `states_max` of them.
fn check<M>(name: String, model: M, must_break: &'static [&'static str], states_max: usize) -> ModelResult
where
    M: Model + Send + Sync + 'static,
    M::State: Send + Sync + std::hash::Hash + Clone + fmt::Debug + PartialEq + 'static,
    M::Action: Send + Sync + fmt::Display + Clone + fmt::Debug + PartialEq + 'static,
{
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let checker = model
        .checker()
        .threads(threads)
        .target_state_count(states_max)
        .spawn_bfs()
        .join();
    let steps = |path: stateright::Path<M::State, M::Action>| {
        path.into_actions().into_iter().map(|action| action.to_string()).collect()
    };
    let found = checker.discoveries().into_iter();
    ModelResult {
        name,
        states: checker.unique_state_count(),
        exhaustive: checker.state_count() < states_max,
        broken: found.map(|(property, path)| (property, steps(path))).collect(),
        must_break,
    }
}
