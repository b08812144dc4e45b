//! The protocol of one job: the product's rules of claims, ledger, late completion and calling off, and everything that
//! can go wrong around them.
//!
//! As with leases, a message is lost by never arriving, and a worker stalls by doing nothing. A worker that stalled goes
//! on all the same: it records and completes without looking at its clock, so that every stale and every late word is
//! said somewhere.

mod world;

use std::fmt;

use stateright::{Model, Property};

use self::world::{JobBreach, JobMessage, JobWorld, ModelWorker, WorkStage};
use super::{ModelResult, always, check};

/// Time moves in steps of this.
const TICK_MS: u64 = 1_000;
/// The ttl, in steps.
const TTL: u8 = 2;

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub struct JobBounds {
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
pub fn run(bounds: JobBounds, states_max: usize) -> ModelResult {
    let JobBounds { workers, claims, ticks, doubled, cancels, crashes, proof, asks } = bounds;
    let name = format!(
        "jobs: {workers} workers, {claims} claims, {ticks} ticks, {doubled} doubled, {cancels} called off, \
         {crashes} crashes, {}, {}",
        if proof { "proof" } else { "names only" },
        if asks { "a person decides" } else { "had again" },
    );
    let must_break: &[&str] = if proof { &[] } else { &[STALE_WORD, ONCE] };
    check(name, JobModel { bounds }, must_break, states_max)
}

#[derive(Clone, Debug)]
struct JobModel {
    bounds: JobBounds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobStep {
    Tick,
    Ask(u8),
    AskAgain(u8),
    Renew(u8),
    Announce(u8),
    Record(u8),
    Complete(u8),
    Fail(u8),
    Crash(u8),
    Deliver(JobMessage),
    DeliverAndKeep(JobMessage),
    Sweep,
    CallOff { now: bool },
}

impl fmt::Display for JobStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobStep::Tick => f.write_str("a second passes"),
            JobStep::Ask(worker) => write!(f, "worker {worker} asks for the job"),
            JobStep::AskAgain(worker) => write!(f, "worker {worker} sends the same claim again"),
            JobStep::Renew(worker) => write!(f, "worker {worker} sends a renewal"),
            JobStep::Announce(worker) => write!(f, "worker {worker} announces its effect"),
            JobStep::Record(worker) => write!(f, "worker {worker} has had its effect, and records it"),
            JobStep::Complete(worker) => write!(f, "worker {worker} says that the job is done"),
            JobStep::Fail(worker) => write!(f, "worker {worker} says that the job went wrong"),
            JobStep::Crash(worker) => write!(f, "worker {worker} crashes"),
            JobStep::Deliver(message) => write!(f, "{message:?} arrives"),
            JobStep::DeliverAndKeep(message) => write!(f, "{message:?} arrives, and will once more"),
            JobStep::Sweep => f.write_str("the sweep looks at the job"),
            JobStep::CallOff { now: false } => f.write_str("someone calls the job off"),
            JobStep::CallOff { now: true } => f.write_str("someone calls the job off at once"),
        }
    }
}

impl Model for JobModel {
    type State = JobWorld;
    type Action = JobStep;

    fn init_states(&self) -> Vec<JobWorld> {
        vec![JobWorld::new(usize::from(self.bounds.workers))]
    }

    fn actions(&self, world: &JobWorld, steps: &mut Vec<JobStep>) {
        let bounds = &self.bounds;
        if world.now < bounds.ticks {
            steps.push(JobStep::Tick);
        }
        for (worker, state) in (0..).zip(&world.workers) {
            match state {
                ModelWorker::Idle if world.begun < bounds.claims => steps.push(JobStep::Ask(worker)),
                ModelWorker::Idle | ModelWorker::Asking { again: true, .. } => {}
                ModelWorker::Asking { .. } => steps.push(JobStep::AskAgain(worker)),
                ModelWorker::Working { until_ms, stage, .. } => {
                    match stage {
                        WorkStage::Fresh => steps.extend([JobStep::Announce(worker), JobStep::Fail(worker)]),
                        WorkStage::Announced => {}
                        WorkStage::MayAct => steps.push(JobStep::Record(worker)),
                        WorkStage::Recorded => steps.push(JobStep::Complete(worker)),
                    }
                    if world.now_ms() < *until_ms {
                        steps.push(JobStep::Renew(worker));
                    }
                }
            }
            if *state != ModelWorker::Idle && world.crashed < bounds.crashes {
                steps.push(JobStep::Crash(worker));
            }
        }
        let mut earlier = None;
        for message in &world.network {
            if earlier == Some(message) {
                continue;
            }
            earlier = Some(message);
            steps.push(JobStep::Deliver(*message));
            if world.doubled < bounds.doubled {
                steps.push(JobStep::DeliverAndKeep(*message));
            }
        }
        if world.is_claimed() {
            steps.push(JobStep::Sweep);
        }
        if world.called_off < bounds.cancels {
            steps.extend([JobStep::CallOff { now: false }, JobStep::CallOff { now: true }]);
        }
    }

    fn next_state(&self, world: &JobWorld, step: JobStep) -> Option<JobWorld> {
        let mut next = world.clone();
        match step {
            JobStep::Tick => next.now += 1,
            JobStep::Ask(worker) => {
                let (hold, sent) = (next.begun, next.now);
                next.begun += 1;
                next.workers[usize::from(worker)] = ModelWorker::Asking { hold, sent, again: false };
                next.send(JobMessage::Claim { worker, hold, sent });
            }
            JobStep::AskAgain(worker) => {
                let ModelWorker::Asking { hold, sent, again } = &mut next.workers[usize::from(worker)] else {
                    return None;
                };
                *again = true;
                let message = JobMessage::Claim { worker, hold: *hold, sent: *sent };
                next.send(message);
            }
            JobStep::Crash(worker) => {
                next.crashed += 1;
                next.workers[usize::from(worker)] = ModelWorker::Idle;
            }
            JobStep::Renew(worker)
            | JobStep::Announce(worker)
            | JobStep::Record(worker)
            | JobStep::Complete(worker)
            | JobStep::Fail(worker) => {
                let sent = next.now;
                let ModelWorker::Working { hold, token, stage, .. } = &mut next.workers[usize::from(worker)]
                else {
                    return None;
                };
                let (hold, token) = (*hold, *token);
                let message = match step {
                    JobStep::Renew(_) => JobMessage::Renew { worker, hold, token, sent },
                    JobStep::Announce(_) => {
                        *stage = WorkStage::Announced;
                        JobMessage::Announce { worker, hold, token }
                    }
                    JobStep::Record(_) => {
                        *stage = WorkStage::Recorded;
                        JobMessage::Record { hold, token }
                    }
                    JobStep::Complete(_) => JobMessage::Complete { hold, token },
                    _ => JobMessage::Fail { hold, token },
                };
                if matches!(message, JobMessage::Complete { .. } | JobMessage::Fail { .. }) {
                    next.workers[usize::from(worker)] = ModelWorker::Idle;
                }
                if matches!(message, JobMessage::Renew { .. }) && next.renews(hold) {
                    return None;
                }
                next.send(message);
            }
            JobStep::Deliver(message) => {
                next.take(message);
                next.arrives(message, self.bounds);
            }
            JobStep::DeliverAndKeep(message) => {
                next.doubled += 1;
                next.arrives(message, self.bounds);
            }
            JobStep::Sweep => next.sweeps(),
            JobStep::CallOff { now } => {
                next.called_off += 1;
                next.is_called_off(now);
            }
        }
        next.forget_what_nobody_awaits();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        always::<Self, _>([
            ("P1 one attempt works on the job", |_, world| !world.broke(JobBreach::TwoAttempts)),
            ("P2 tokens only grow", |_, world| !world.broke(JobBreach::TokenDidNotGrow)),
            ("P3 renewal revives nothing", |_, world| !world.broke(JobBreach::Revived)),
            (STALE_WORD, |_, world| !world.broke(JobBreach::StaleWord)),
            ("the first end stands, and what was called off is not given out", |_, world| {
                !world.broke(JobBreach::EndedTwice)
            }),
            (ONCE, |_, world| !world.broke(JobBreach::EffectTwice)),
            ("late completion is taken as long as no other attempt has had the job since", |_, world| {
                !world.broke(JobBreach::LateRefused)
            }),
            ("a live holder is heard, and never loses its claim", |_, world| !world.broke(JobBreach::Robbed)),
            ("a dead holder's job comes back", |_, world| !world.broke(JobBreach::Stuck)),
        ])
    }
}
