//! The protocol of one job: the product's rules of claims, ledger, late completion and calling off, and everything that
//! can go wrong around them.
//!
//! As with leases, a message is lost by never arriving, and a worker stalls by doing nothing. A worker that stalled goes
//! on all the same: it records and completes without looking at its clock, so that every stale and every late word is
//! said somewhere.

mod world;

use std::fmt;

use stateright::{Model, Property};

use self::world::{Breach, Message, Stage, Worker, World};
use super::{Outcome, check};

/// Time moves in steps of this.
const TICK_MS: u64 = 1_000;
/// The ttl, in steps.
const TTL: u8 = 2;

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// How many workers.
    pub workers: u8,
    /// How many claims all workers begin together.
    pub claims: u8,
    /// How many steps of time.
    pub ticks: u8,
    /// How many messages arrive twice.
    pub doubled: u8,
    /// How often the job is called off.
    pub cancels: u8,
    /// How many workers crash.
    pub crashes: u8,
    /// Whether attempts say who they are by hold id and token, and not by their names alone.
    pub proof: bool,
    /// Whether an effect in doubt waits for a person, instead of being had again.
    pub asks: bool,
}

/// Without a proof, a worker that overslept speaks for the attempt of its successor.
const STALE_WORD: &str = "P5 a stale attempt ends nothing";
const ONCE: &str = "P8 an effect is recorded once, and never by a stale attempt";

/// Runs the model.
pub fn run(bounds: Bounds, states_max: usize) -> Outcome {
    let Bounds { workers, claims, ticks, doubled, cancels, crashes, proof, asks } = bounds;
    let name = format!(
        "jobs: {workers} workers, {claims} claims, {ticks} ticks, {doubled} doubled, {cancels} called off, \
         {crashes} crashes, {}, {}",
        if proof { "proof" } else { "names only" },
        if asks { "a person decides" } else { "had again" },
    );
    let must_break: &[&str] = if proof { &[] } else { &[STALE_WORD, ONCE] };
    check(name, Jobs { bounds }, must_break, states_max)
}

#[derive(Clone, Debug)]
struct Jobs {
    bounds: Bounds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Ask(u8),
    AskAgain(u8),
    Renew(u8),
    Announce(u8),
    Record(u8),
    Complete(u8),
    Fail(u8),
    Crash(u8),
    Deliver(Message),
    DeliverAndKeep(Message),
    Sweep,
    CallOff { now: bool },
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Tick => f.write_str("a second passes"),
            Step::Ask(worker) => write!(f, "worker {worker} asks for the job"),
            Step::AskAgain(worker) => write!(f, "worker {worker} sends the same claim again"),
            Step::Renew(worker) => write!(f, "worker {worker} sends a renewal"),
            Step::Announce(worker) => write!(f, "worker {worker} announces its effect"),
            Step::Record(worker) => write!(f, "worker {worker} has had its effect, and records it"),
            Step::Complete(worker) => write!(f, "worker {worker} says that the job is done"),
            Step::Fail(worker) => write!(f, "worker {worker} says that the job went wrong"),
            Step::Crash(worker) => write!(f, "worker {worker} crashes"),
            Step::Deliver(message) => write!(f, "{message:?} arrives"),
            Step::DeliverAndKeep(message) => write!(f, "{message:?} arrives, and will once more"),
            Step::Sweep => f.write_str("the sweep looks at the job"),
            Step::CallOff { now: false } => f.write_str("someone calls the job off"),
            Step::CallOff { now: true } => f.write_str("someone calls the job off at once"),
        }
    }
}

impl Model for Jobs {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World::new(usize::from(self.bounds.workers))]
    }

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let bounds = &self.bounds;
        if world.now < bounds.ticks {
            steps.push(Step::Tick);
        }
        for (worker, state) in (0..).zip(&world.workers) {
            match state {
                Worker::Idle if world.begun < bounds.claims => steps.push(Step::Ask(worker)),
                Worker::Idle | Worker::Asking { again: true, .. } => {}
                Worker::Asking { .. } => steps.push(Step::AskAgain(worker)),
                Worker::Working { until_ms, stage, .. } => {
                    match stage {
                        Stage::Fresh => steps.extend([Step::Announce(worker), Step::Fail(worker)]),
                        Stage::Announced => {}
                        Stage::MayAct => steps.push(Step::Record(worker)),
                        Stage::Recorded => steps.push(Step::Complete(worker)),
                    }
                    if world.now_ms() < *until_ms {
                        steps.push(Step::Renew(worker));
                    }
                }
            }
            if *state != Worker::Idle && world.crashed < bounds.crashes {
                steps.push(Step::Crash(worker));
            }
        }
        let mut earlier = None;
        for message in &world.network {
            if earlier == Some(message) {
                continue;
            }
            earlier = Some(message);
            steps.push(Step::Deliver(*message));
            if world.doubled < bounds.doubled {
                steps.push(Step::DeliverAndKeep(*message));
            }
        }
        if world.is_claimed() {
            steps.push(Step::Sweep);
        }
        if world.called_off < bounds.cancels {
            steps.extend([Step::CallOff { now: false }, Step::CallOff { now: true }]);
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Tick => next.now += 1,
            Step::Ask(worker) => {
                let (hold, sent) = (next.begun, next.now);
                next.begun += 1;
                next.workers[usize::from(worker)] = Worker::Asking { hold, sent, again: false };
                next.send(Message::Claim { worker, hold, sent });
            }
            Step::AskAgain(worker) => {
                let Worker::Asking { hold, sent, again } = &mut next.workers[usize::from(worker)] else {
                    return None;
                };
                *again = true;
                let message = Message::Claim { worker, hold: *hold, sent: *sent };
                next.send(message);
            }
            Step::Crash(worker) => {
                next.crashed += 1;
                next.workers[usize::from(worker)] = Worker::Idle;
            }
            Step::Renew(worker)
            | Step::Announce(worker)
            | Step::Record(worker)
            | Step::Complete(worker)
            | Step::Fail(worker) => {
                let sent = next.now;
                let Worker::Working { hold, token, stage, .. } = &mut next.workers[usize::from(worker)]
                else {
                    return None;
                };
                let (hold, token) = (*hold, *token);
                let message = match step {
                    Step::Renew(_) => Message::Renew { worker, hold, token, sent },
                    Step::Announce(_) => {
                        *stage = Stage::Announced;
                        Message::Announce { worker, hold, token }
                    }
                    Step::Record(_) => {
                        *stage = Stage::Recorded;
                        Message::Record { hold, token }
                    }
                    Step::Complete(_) => Message::Complete { hold, token },
                    _ => Message::Fail { hold, token },
                };
                if matches!(message, Message::Complete { .. } | Message::Fail { .. }) {
                    next.workers[usize::from(worker)] = Worker::Idle;
                }
                if matches!(message, Message::Renew { .. }) && next.renews(hold) {
                    return None;
                }
                next.send(message);
            }
            Step::Deliver(message) => {
                next.take(message);
                next.arrives(message, self.bounds);
            }
            Step::DeliverAndKeep(message) => {
                next.doubled += 1;
                next.arrives(message, self.bounds);
            }
            Step::Sweep => next.sweeps(),
            Step::CallOff { now } => {
                next.called_off += 1;
                next.is_called_off(now);
            }
        }
        next.forget_what_nobody_awaits();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        type Holds = fn(&Jobs, &World) -> bool;
        let properties: [(&'static str, Holds); 9] = [
            ("P1 one attempt works on the job", |_, world| !world.broke(Breach::TwoAttempts)),
            ("P2 tokens only grow", |_, world| !world.broke(Breach::TokenDidNotGrow)),
            ("P3 renewal revives nothing", |_, world| !world.broke(Breach::Revived)),
            (STALE_WORD, |_, world| !world.broke(Breach::StaleWord)),
            ("the first end stands, and what was called off is not given out", |_, world| {
                !world.broke(Breach::EndedTwice)
            }),
            (ONCE, |_, world| !world.broke(Breach::EffectTwice)),
            ("late completion is taken as long as no other attempt has had the job since", |_, world| {
                !world.broke(Breach::LateRefused)
            }),
            ("a live holder is heard, and never loses its claim", |_, world| !world.broke(Breach::Robbed)),
            ("a dead holder's job comes back", |_, world| !world.broke(Breach::Stuck)),
        ];
        properties
            .into_iter()
            .map(|(name, holds)| Property::always(name, holds))
            .collect()
    }
}
