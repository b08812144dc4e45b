//! The ownership of a `file:` directory: an epoch in the database, checked by every commit and before every answer.
//!
//! Any process may take over at any moment (from outside, an owner that is stopped looks like one that is slow), may
//! stop between any two steps, and may die. What an owner knows of the leases is its memory; what is true is what was
//! committed under the current epoch.

use std::fmt;

use stateright::{Model, Property};

use super::{Outcome, check};

/// How far the model goes, and which safeguard is taken away.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
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
pub fn run(bounds: Bounds, states_max: usize) -> Outcome {
    let Bounds { processes, requests, takeovers, deaths, commit_checks, answer_checks } = bounds;
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
    check(name, Directory { bounds }, must_break, states_max)
}

#[derive(Clone, Debug)]
struct Directory {
    bounds: Bounds,
}

/// The database: its epoch, and the counter of the one key there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Database {
    epoch: u8,
    counter: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Process {
    /// Asks the owner.
    Client,
    /// Serves, as far as it knows.
    Owner {
        epoch: u8,
        counter: u8,
        batch: Batch,
    },
    Dead,
}

/// Where an owner is with the requests that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Batch {
    None,
    /// A grant of the next token was decided, and is not kept yet. `asked` is the newest token at the asking.
    Grant,
    /// A question was answered from memory, and the answer has not gone yet.
    Look {
        asked: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    database: Database,
    processes: Vec<Process>,
    /// Tokens that were acknowledged.
    given: Vec<u8>,
    same_token: bool,
    old_news: bool,
    requests: u8,
    takeovers: u8,
    deaths: u8,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    TakeOver(u8),
    DecideGrant(u8),
    DecideLook(u8),
    Commit(u8),
    Answer(u8),
    Die(u8),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::TakeOver(process) => write!(f, "process {process} takes over"),
            Step::DecideGrant(process) => write!(f, "process {process} decides to grant the next token"),
            Step::DecideLook(process) => write!(f, "process {process} looks up the newest token"),
            Step::Commit(process) => write!(f, "process {process} commits and answers"),
            Step::Answer(process) => write!(f, "process {process} answers the look-up"),
            Step::Die(process) => write!(f, "process {process} dies"),
        }
    }
}

impl Model for Directory {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            database: Database::default(),
            processes: vec![Process::Client; usize::from(self.bounds.processes)],
            given: Vec::new(),
            same_token: false,
            old_news: false,
            requests: 0,
            takeovers: 0,
            deaths: 0,
        }]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let bounds = &self.bounds;
        for (at, process) in (0..).zip(&world.processes) {
            match process {
                Process::Dead => continue,
                Process::Client if world.takeovers < bounds.takeovers => steps.push(Step::TakeOver(at)),
                Process::Owner { batch: Batch::None, .. } if world.requests < bounds.requests => {
                    steps.extend([Step::DecideGrant(at), Step::DecideLook(at)]);
                }
                Process::Client | Process::Owner { batch: Batch::None, .. } => {}
                Process::Owner { batch: Batch::Grant, .. } => steps.push(Step::Commit(at)),
                Process::Owner { batch: Batch::Look { .. }, .. } => steps.push(Step::Answer(at)),
            }
            if world.deaths < bounds.deaths {
                steps.push(Step::Die(at));
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::TakeOver(at) => {
                // One transaction: two contenders cannot both raise the same epoch.
                next.takeovers += 1;
                next.database.epoch += 1;
                let Database { epoch, counter } = next.database;
                next.processes[usize::from(at)] = Process::Owner { epoch, counter, batch: Batch::None };
            }
            Step::DecideGrant(at) => {
                next.requests += 1;
                let Process::Owner { batch, .. } = &mut next.processes[usize::from(at)] else { return None };
                *batch = Batch::Grant;
            }
            Step::DecideLook(at) => {
                next.requests += 1;
                let asked = next.given.iter().copied().max().unwrap_or(0);
                let Process::Owner { batch, .. } = &mut next.processes[usize::from(at)] else { return None };
                *batch = Batch::Look { asked };
            }
            Step::Commit(at) => {
                let Process::Owner { epoch, counter, batch } = &mut next.processes[usize::from(at)] else {
                    return None;
                };
                if self.bounds.commit_checks && *epoch != next.database.epoch {
                    // Superseded: it answers nothing and becomes a client.
                    next.processes[usize::from(at)] = Process::Client;
                    return Some(next);
                }
                *counter += 1;
                *batch = Batch::None;
                let token = *counter;
                next.database.counter = token;
                next.same_token |= next.given.contains(&token);
                next.given.push(token);
            }
            Step::Answer(at) => {
                let Process::Owner { epoch, counter, batch } = &mut next.processes[usize::from(at)] else {
                    return None;
                };
                if self.bounds.answer_checks && *epoch != next.database.epoch {
                    next.processes[usize::from(at)] = Process::Client;
                    return Some(next);
                }
                let Batch::Look { asked } = *batch else { return None };
                *batch = Batch::None;
                next.old_news |= *counter < asked;
            }
            Step::Die(at) => {
                next.deaths += 1;
                next.processes[usize::from(at)] = Process::Dead;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always(SAME_TOKEN, |_, world: &World| !world.same_token),
            Property::always(LOST, |_, world: &World| {
                world.given.iter().all(|token| *token <= world.database.counter)
            }),
            Property::always(OLD_NEWS, |_, world: &World| !world.old_news),
        ]
    }
}
