//! The lease protocol on one key: the product's rules, and everything that can go wrong around them.
//!
//! A message is lost by never arriving, and a client stalls by doing nothing: every state in which a message is still under
//! way, or a client has not moved, stands for that too.

mod world;

use std::fmt;

use fencehold_core::Reason;
use fencehold_core::lease::{LeaseCommand, LeaseCommandResult as Ruled, LeaseRecord};
use stateright::{Model, Property};

use self::world::{Downstream, LeaseBreach, LeaseMessage, LeaseWorld, Ledger, ModelClient, owner};
use super::{ModelResult, always, check};

/// Time moves in steps of this.
const TICK_MS: u64 = 1_000;
/// The ttl, in steps.
const TTL: u8 = 2;

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub struct LeaseBounds {
    /// How many clients.
    pub clients: u8,
    /// How many acquisitions all clients begin together.
    pub acquisitions: u8,
    /// How many steps of time.
    pub ticks: u8,
    /// How many messages arrive twice.
    pub doubled: u8,
    /// How often force is used.
    pub revocations: u8,
    /// How often the store restarts.
    pub restarts: u8,
    /// How many clients crash.
    pub crashes: u8,
    /// Whether what the lease protects checks tokens.
    pub fence: bool,
}

/// Without a fence, a holder that overslept writes after its successor did.
const STALE_WRITE: &str = "P5 no write is accepted after one with a larger token";

/// Runs the model.
pub fn run(bounds: LeaseBounds, states_max: usize) -> ModelResult {
    let LeaseBounds { clients, acquisitions, ticks, doubled, revocations, restarts, crashes, fence } = bounds;
    let name = format!(
        "leases: {clients} clients, {acquisitions} acquisitions, {ticks} ticks, {doubled} doubled, {revocations} \
         revoked, {restarts} restarts, {crashes} crashes, {}",
        if fence { "fence" } else { "no fence" }
    );
    let must_break: &[&str] = if fence { &[] } else { &[STALE_WRITE] };
    check(name, LeaseModel { bounds }, must_break, states_max)
}

#[derive(Clone, Debug)]
struct LeaseModel {
    bounds: LeaseBounds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseStep {
    Tick,
    Ask(u8),
    AskAgain(u8),
    Renew(u8),
    Release(u8),
    Write(u8),
    Crash(u8),
    Deliver(LeaseMessage),
    DeliverAndKeep(LeaseMessage),
    Sweep,
    Revoke,
    Restart,
}

impl fmt::Display for LeaseStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LeaseStep::Tick => f.write_str("a second passes"),
            LeaseStep::Ask(client) => write!(f, "client {client} asks for the key"),
            LeaseStep::AskAgain(client) => write!(f, "client {client} sends the same request again"),
            LeaseStep::Renew(client) => write!(f, "client {client} sends a renewal"),
            LeaseStep::Release(client) => write!(f, "client {client} sends a release"),
            LeaseStep::Write(client) => write!(f, "client {client} sends a write downstream"),
            LeaseStep::Crash(client) => write!(f, "client {client} crashes"),
            LeaseStep::Deliver(message) => write!(f, "{message:?} arrives"),
            LeaseStep::DeliverAndKeep(message) => write!(f, "{message:?} arrives, and will once more"),
            LeaseStep::Sweep => f.write_str("the sweep looks at the key"),
            LeaseStep::Revoke => f.write_str("an operator revokes the lease"),
            LeaseStep::Restart => f.write_str("the store restarts"),
        }
    }
}

impl Model for LeaseModel {
    type State = LeaseWorld;
    type Action = LeaseStep;

    fn init_states(&self) -> Vec<LeaseWorld> {
        vec![LeaseWorld {
            now: 0,
            record: LeaseRecord::default(),
            deadline_ms: 0,
            clients: vec![ModelClient::Idle; usize::from(self.bounds.clients)],
            network: Vec::new(),
            ledger: Ledger::default(),
            downstream: Downstream::default(),
            begun: 0,
            doubled: 0,
            revoked: 0,
            restarted: 0,
            crashed: 0,
        }]
    }

    fn actions(&self, world: &LeaseWorld, steps: &mut Vec<LeaseStep>) {
        let bounds = &self.bounds;
        if world.now < bounds.ticks {
            steps.push(LeaseStep::Tick);
        }
        for (client, state) in (0..).zip(&world.clients) {
            match state {
                ModelClient::Idle if world.begun < bounds.acquisitions => steps.push(LeaseStep::Ask(client)),
                ModelClient::Asking { again: false, .. } => steps.push(LeaseStep::AskAgain(client)),
                ModelClient::Idle | ModelClient::Asking { .. } => {}
                ModelClient::Holding { until_ms, wrote, .. } => {
                    if world.now_ms() < *until_ms {
                        steps.extend([LeaseStep::Renew(client), LeaseStep::Release(client)]);
                        if !wrote {
                            steps.push(LeaseStep::Write(client));
                        }
                    }
                }
            }
            if *state != ModelClient::Idle && world.crashed < bounds.crashes {
                steps.push(LeaseStep::Crash(client));
            }
        }
        let mut earlier = None;
        for message in &world.network {
            if earlier == Some(message) {
                continue;
            }
            earlier = Some(message);
            steps.push(LeaseStep::Deliver(*message));
            if world.doubled < bounds.doubled {
                steps.push(LeaseStep::DeliverAndKeep(*message));
            }
        }
        if world.record.hold.is_some() {
            steps.push(LeaseStep::Sweep);
            if world.revoked < bounds.revocations {
                steps.push(LeaseStep::Revoke);
            }
            if world.restarted < bounds.restarts {
                steps.push(LeaseStep::Restart);
            }
        }
    }

    fn next_state(&self, world: &LeaseWorld, step: LeaseStep) -> Option<LeaseWorld> {
        let mut next = world.clone();
        match step {
            LeaseStep::Tick => next.now += 1,
            LeaseStep::Ask(client) => {
                let (hold, sent) = (next.begun, next.now);
                next.begun += 1;
                next.clients[usize::from(client)] =
                    ModelClient::Asking { hold, first_sent: sent, again: false };
                next.send(LeaseMessage::Acquire { client, hold, sent, again: false });
            }
            LeaseStep::AskAgain(client) => {
                let ModelClient::Asking { hold, first_sent, again } = &mut next.clients[usize::from(client)]
                else {
                    return None;
                };
                *again = true;
                // Which sending is answered cannot be known, so both are counted from the first.
                let message = LeaseMessage::Acquire { client, hold: *hold, sent: *first_sent, again: true };
                next.send(message);
            }
            LeaseStep::Renew(client) => {
                let ModelClient::Holding { hold, token, .. } = next.clients[usize::from(client)] else {
                    return None;
                };
                let under_way = |message: &LeaseMessage| matches!(message, LeaseMessage::Renew { hold: sent, .. } if *sent == hold);
                if next.network.iter().any(under_way) {
                    return None;
                }
                next.send(LeaseMessage::Renew { client, hold, token, sent: next.now });
            }
            LeaseStep::Release(client) => {
                let ModelClient::Holding { hold, token, .. } = next.clients[usize::from(client)] else {
                    return None;
                };
                next.clients[usize::from(client)] = ModelClient::Idle;
                next.send(LeaseMessage::Release { hold, token });
            }
            LeaseStep::Write(client) => {
                let ModelClient::Holding { token, wrote, .. } = &mut next.clients[usize::from(client)] else {
                    return None;
                };
                *wrote = true;
                let message = LeaseMessage::Write { token: *token };
                next.send(message);
            }
            LeaseStep::Crash(client) => {
                next.crashed += 1;
                next.clients[usize::from(client)] = ModelClient::Idle;
            }
            LeaseStep::Deliver(message) => {
                next.take(message);
                next.arrives(message, self.bounds.fence);
            }
            LeaseStep::DeliverAndKeep(message) => {
                next.doubled += 1;
                next.arrives(message, self.bounds.fence);
            }
            LeaseStep::Sweep => {
                let live = next.live().next().is_some();
                if matches!(next.rule(&LeaseCommand::Expire), Ok(Ruled::Expired { .. })) && live {
                    next.breach(LeaseBreach::Robbed);
                }
            }
            LeaseStep::Revoke => {
                next.revoked += 1;
                let reason = Reason::new("modelled").ok()?;
                if let Ok(Ruled::Revoked(revoked)) =
                    next.rule(&LeaseCommand::Revoke { by: owner(), reason, only_token: None })
                {
                    if revoked.consumed_token.get() <= next.ledger.newest {
                        next.breach(LeaseBreach::TokenDidNotGrow);
                    }
                    next.ledger.newest = revoked.consumed_token.get();
                    next.ledger.promised.retain(|(token, ..)| *token != revoked.token.get());
                }
            }
            LeaseStep::Restart => {
                // What is kept survives; renewals that were not synced may be lost, so every hold gets a ttl anew, also
                // one that seems to have run out. So much is promised: a restart may only lengthen.
                next.restarted += 1;
                next.deadline_ms = next.now_ms() + u64::from(TTL) * TICK_MS;
                let (token, deadline_ms) = (next.record.counter.get(), next.deadline_ms);
                for (promised, _, until_ms) in &mut next.ledger.promised {
                    if *promised == token {
                        *until_ms = deadline_ms;
                    }
                }
            }
        }
        next.forget_what_nobody_awaits();
        next.look_at_beliefs();
        (next != *world).then_some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        always::<Self, _>([
            ("P1 one holder", |_, world| !world.broke(LeaseBreach::TwoHolders) && world.live().count() <= 1),
            ("P2 tokens only grow", |_, world| !world.broke(LeaseBreach::TokenDidNotGrow)),
            ("P3 renewal revives nothing", |_, world| !world.broke(LeaseBreach::Revived)),
            (STALE_WRITE, |_, world| !world.downstream.stale_write),
            ("a live holder that renews in time never loses", |_, world| !world.broke(LeaseBreach::Robbed)),
            ("a dead holder's key becomes free", |_, world| !world.broke(LeaseBreach::Stuck)),
            ("no client believes in a lease for longer than it was promised", |_, world| {
                !world.broke(LeaseBreach::BelievesTooLong)
            }),
        ])
    }
}
