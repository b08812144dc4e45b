//! The ownership of a `file:` directory: an epoch in the database, checked by every commit and before every answer.
//!
//! Any process may take over at any moment (from outside, an owner that is stopped looks like one that is slow), may
//! stop between any two steps, and may die. What an owner knows of the leases is its memory; what is true is what was
//! committed under the current epoch.

use std::fmt;

use stateright::{Model, Property};

use super::{ModelResult, check};

/// How far the model goes, and which safeguard is taken away.
#[derive(Clone, Copy, Debug)]
pub struct TakeoverBounds {
    /// How many processes share the directory.
    pub processes: u8,
    /// How many requests are made.
    pub requests: u8,
    /// How often the store is taken over.
    pub takeovers: u8,
    /// How many processes die.
    pub deaths: u8,
    /// Whether a commit checks the epoch.
    pub commit_checks: bool,
    /// Whether answers that change nothing wait for the epoch to be read once more.
    pub answer_checks: bool,
}

const SAME_TOKEN: &str = "P2 no token is given twice";
const OLD_NEWS: &str = "no answer tells what was no longer true when it was asked for";
const LOST: &str = "P6 nothing acknowledged is lost";

/// Runs the model.
pub fn run(bounds: TakeoverBounds, states_max: usize) -> ModelResult {
    let TakeoverBounds { processes, requests, takeovers, deaths, commit_checks, answer_checks } = bounds;
    let without = match (commit_checks, answer_checks) {
        (true, true) => "",
        (false, _) => ", commits unchecked",
        (true, false) => ", answers unchecked",
    };
    let name = format!(
        "takeover: {processes} processes, {requests} requests, {takeovers} takeovers, {deaths} deaths{without}"
    );
    let must_break: &[&str] = match (commit_checks, answer_checks) {
        (true, true) => &[],
        (false, _) => &[SAME_TOKEN, LOST, OLD_NEWS],
        (true, false) => &[OLD_NEWS],
    };
    check(name, TakeoverModel { bounds }, must_break, states_max)
}

#[derive(Clone, Debug)]
struct TakeoverModel {
    bounds: TakeoverBounds,
}

/// The database: its epoch, and the counter of the one key there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct ModelDatabase {
    epoch: u8,
    counter: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum ModelProcess {
    /// Asks the owner.
    Client,
    /// Serves, as far as it knows.
    Owner {
        epoch: u8,
        counter: u8,
        batch: OwnerBatch,
    },
    Dead,
}

/// Where an owner is with the requests that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum OwnerBatch {
    None,
    /// A grant of the next token was decided, and is not kept yet. `asked` is the newest token at the asking.
    Grant,
    /// A question was answered from memory, and the answer has not gone yet.
    Look {
        asked: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct TakeoverWorld {
    database: ModelDatabase,
    processes: Vec<ModelProcess>,
    /// Tokens that were acknowledged.
    given: Vec<u8>,
    same_token: bool,
    old_news: bool,
    requests: u8,
    takeovers: u8,
    deaths: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakeoverStep {
    TakeOver(u8),
    DecideGrant(u8),
    DecideLook(u8),
    Commit(u8),
    Answer(u8),
    Die(u8),
}

impl fmt::Display for TakeoverStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TakeoverStep::TakeOver(process) => write!(f, "process {process} takes over"),
            TakeoverStep::DecideGrant(process) => {
                write!(f, "process {process} decides to grant the next token")
            }
            TakeoverStep::DecideLook(process) => write!(f, "process {process} looks up the newest token"),
            TakeoverStep::Commit(process) => write!(f, "process {process} commits and answers"),
            TakeoverStep::Answer(process) => write!(f, "process {process} answers the look-up"),
            TakeoverStep::Die(process) => write!(f, "process {process} dies"),
        }
    }
}

impl Model for TakeoverModel {
    type State = TakeoverWorld;
    type Action = TakeoverStep;

    fn init_states(&self) -> Vec<TakeoverWorld> {
        vec![TakeoverWorld {
            database: ModelDatabase::default(),
            processes: vec![ModelProcess::Client; usize::from(self.bounds.processes)],
            given: Vec::new(),
            same_token: false,
            old_news: false,
            requests: 0,
            takeovers: 0,
            deaths: 0,
        }]
    }

    fn actions(&self, world: &TakeoverWorld, steps: &mut Vec<TakeoverStep>) {
        let bounds = &self.bounds;
        for (at, process) in (0..).zip(&world.processes) {
            match process {
                ModelProcess::Dead => continue,
                ModelProcess::Client if world.takeovers < bounds.takeovers => {
                    steps.push(TakeoverStep::TakeOver(at));
                }
                ModelProcess::Owner { batch: OwnerBatch::None, .. } if world.requests < bounds.requests => {
                    steps.extend([TakeoverStep::DecideGrant(at), TakeoverStep::DecideLook(at)]);
                }
                ModelProcess::Client | ModelProcess::Owner { batch: OwnerBatch::None, .. } => {}
                ModelProcess::Owner { batch: OwnerBatch::Grant, .. } => steps.push(TakeoverStep::Commit(at)),
                ModelProcess::Owner { batch: OwnerBatch::Look { .. }, .. } => {
                    steps.push(TakeoverStep::Answer(at));
                }
            }
            if world.deaths < bounds.deaths {
                steps.push(TakeoverStep::Die(at));
            }
        }
    }

    fn next_state(&self, world: &TakeoverWorld, step: TakeoverStep) -> Option<TakeoverWorld> {
        let mut next = world.clone();
        match step {
            TakeoverStep::TakeOver(at) => {
                // One transaction: two contenders cannot both raise the same epoch.
                next.takeovers += 1;
                next.database.epoch += 1;
                let ModelDatabase { epoch, counter } = next.database;
                next.processes[usize::from(at)] =
                    ModelProcess::Owner { epoch, counter, batch: OwnerBatch::None };
            }
            TakeoverStep::DecideGrant(at) => {
                next.requests += 1;
                let ModelProcess::Owner { batch, .. } = &mut next.processes[usize::from(at)] else {
                    return None;
                };
                *batch = OwnerBatch::Grant;
            }
            TakeoverStep::DecideLook(at) => {
                next.requests += 1;
                let asked = next.given.iter().copied().max().unwrap_or(0);
                let ModelProcess::Owner { batch, .. } = &mut next.processes[usize::from(at)] else {
                    return None;
                };
                *batch = OwnerBatch::Look { asked };
            }
            TakeoverStep::Commit(at) => {
                let ModelProcess::Owner { epoch, counter, batch } = &mut next.processes[usize::from(at)]
                else {
                    return None;
                };
                if self.bounds.commit_checks && *epoch != next.database.epoch {
                    // Superseded: it answers nothing and becomes a client.
                    next.processes[usize::from(at)] = ModelProcess::Client;
                    return Some(next);
                }
                *counter += 1;
                *batch = OwnerBatch::None;
                let token = *counter;
                next.database.counter = token;
                next.same_token |= next.given.contains(&token);
                next.given.push(token);
            }
            TakeoverStep::Answer(at) => {
                let ModelProcess::Owner { epoch, counter, batch } = &mut next.processes[usize::from(at)]
                else {
                    return None;
                };
                if self.bounds.answer_checks && *epoch != next.database.epoch {
                    next.processes[usize::from(at)] = ModelProcess::Client;
                    return Some(next);
                }
                let OwnerBatch::Look { asked } = *batch else { return None };
                *batch = OwnerBatch::None;
                next.old_news |= *counter < asked;
            }
            TakeoverStep::Die(at) => {
                next.deaths += 1;
                next.processes[usize::from(at)] = ModelProcess::Dead;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAME_TOKEN, |_, world: &TakeoverWorld| !world.same_token),
            Property::always(LOST, |_, world: &TakeoverWorld| {
                world.given.iter().all(|token| *token <= world.database.counter)
            }),
            Property::always(OLD_NEWS, |_, world: &TakeoverWorld| !world.old_news),
        ]
    }
}
