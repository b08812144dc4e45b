//! The lease protocol on one key: the product's rules, and everything that can go wrong around them.
//!
//! A message is lost by never arriving, and a client stalls by doing nothing: every state in which a message is still under
//! way, or a client has not moved, stands for that too.

mod world;

use std::fmt;

use fencehold_core::Reason;
use fencehold_core::lease::{Command, Outcome as Ruled, Record};
use stateright::{Model, Property};

use self::world::{Breach, Client, Downstream, Ledger, Message, World, owner};
use super::{Outcome, check};

/// Time moves in steps of this.
const TICK_MS: u64 = 1_000;
/// The ttl, in steps.
const TTL: u8 = 2;

/// How far the model goes.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
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
pub fn run(bounds: Bounds, states_max: usize) -> Outcome {
    let Bounds { clients, acquisitions, ticks, doubled, revocations, restarts, crashes, fence } = bounds;
    let name = format!(
        "leases: {clients} clients, {acquisitions} acquisitions, {ticks} ticks, {doubled} doubled, {revocations} \
         revoked, {restarts} restarts, {crashes} crashes, {}",
        if fence { "fence" } else { "no fence" }
    );
    let must_break: &[&str] = if fence { &[] } else { &[STALE_WRITE] };
    check(name, Leases { bounds }, must_break, states_max)
}

#[derive(Clone, Debug)]
struct Leases {
    bounds: Bounds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Tick,
    Ask(u8),
    AskAgain(u8),
    Renew(u8),
    Release(u8),
    Write(u8),
    Crash(u8),
    Deliver(Message),
    DeliverAndKeep(Message),
    Sweep,
    Revoke,
    Restart,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Tick => f.write_str("a second passes"),
            Step::Ask(client) => write!(f, "client {client} asks for the key"),
            Step::AskAgain(client) => write!(f, "client {client} sends the same request again"),
            Step::Renew(client) => write!(f, "client {client} sends a renewal"),
            Step::Release(client) => write!(f, "client {client} sends a release"),
            Step::Write(client) => write!(f, "client {client} sends a write downstream"),
            Step::Crash(client) => write!(f, "client {client} crashes"),
            Step::Deliver(message) => write!(f, "{message:?} arrives"),
            Step::DeliverAndKeep(message) => write!(f, "{message:?} arrives, and will once more"),
            Step::Sweep => f.write_str("the sweep looks at the key"),
            Step::Revoke => f.write_str("an operator revokes the lease"),
            Step::Restart => f.write_str("the store restarts"),
        }
    }
}

impl Model for Leases {
    type State = World;
    type Action = Step;

    fn init_states(&self) -> Vec<World> {
        vec![World {
            now: 0,
            record: Record::default(),
            deadline_ms: 0,
            clients: vec![Client::Idle; usize::from(self.bounds.clients)],
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

    fn actions(&self, world: &World, steps: &mut Vec<Step>) {
        let bounds = &self.bounds;
        if world.now < bounds.ticks {
            steps.push(Step::Tick);
        }
        for (client, state) in (0..).zip(&world.clients) {
            match state {
                Client::Idle if world.begun < bounds.acquisitions => steps.push(Step::Ask(client)),
                Client::Asking { again: false, .. } => steps.push(Step::AskAgain(client)),
                Client::Idle | Client::Asking { .. } => {}
                Client::Holding { until_ms, wrote, .. } => {
                    if world.now_ms() < *until_ms {
                        steps.extend([Step::Renew(client), Step::Release(client)]);
                        if !wrote {
                            steps.push(Step::Write(client));
                        }
                    }
                }
            }
            if *state != Client::Idle && world.crashed < bounds.crashes {
                steps.push(Step::Crash(client));
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
        if world.record.hold.is_some() {
            steps.push(Step::Sweep);
            if world.revoked < bounds.revocations {
                steps.push(Step::Revoke);
            }
            if world.restarted < bounds.restarts {
                steps.push(Step::Restart);
            }
        }
    }

    fn next_state(&self, world: &World, step: Step) -> Option<World> {
        let mut next = world.clone();
        match step {
            Step::Tick => next.now += 1,
            Step::Ask(client) => {
                let (hold, sent) = (next.begun, next.now);
                next.begun += 1;
                next.clients[usize::from(client)] = Client::Asking { hold, first_sent: sent, again: false };
                next.send(Message::Acquire { client, hold, sent, again: false });
            }
            Step::AskAgain(client) => {
                let Client::Asking { hold, first_sent, again } = &mut next.clients[usize::from(client)]
                else {
                    return None;
                };
                *again = true;
                // Which sending is answered cannot be known, so both are counted from the first.
                let message = Message::Acquire { client, hold: *hold, sent: *first_sent, again: true };
                next.send(message);
            }
            Step::Renew(client) => {
                let Client::Holding { hold, token, .. } = next.clients[usize::from(client)] else {
                    return None;
                };
                let under_way =
                    |message: &Message| matches!(message, Message::Renew { hold: sent, .. } if *sent == hold);
                if next.network.iter().any(under_way) {
                    return None;
                }
                next.send(Message::Renew { client, hold, token, sent: next.now });
            }
            Step::Release(client) => {
                let Client::Holding { hold, token, .. } = next.clients[usize::from(client)] else {
                    return None;
                };
                next.clients[usize::from(client)] = Client::Idle;
                next.send(Message::Release { hold, token });
            }
            Step::Write(client) => {
                let Client::Holding { token, wrote, .. } = &mut next.clients[usize::from(client)] else {
                    return None;
                };
                *wrote = true;
                let message = Message::Write { token: *token };
                next.send(message);
            }
            Step::Crash(client) => {
                next.crashed += 1;
                next.clients[usize::from(client)] = Client::Idle;
            }
            Step::Deliver(message) => {
                next.take(message);
                next.arrives(message, self.bounds.fence);
            }
            Step::DeliverAndKeep(message) => {
                next.doubled += 1;
                next.arrives(message, self.bounds.fence);
            }
            Step::Sweep => {
                let live = next.live().next().is_some();
                if matches!(next.rule(&Command::Expire), Ok(Ruled::Expired { .. })) && live {
                    next.breach(Breach::Robbed);
                }
            }
            Step::Revoke => {
                next.revoked += 1;
                let reason = Reason::new("modelled").ok()?;
                if let Ok(Ruled::Revoked(revoked)) =
                    next.rule(&Command::Revoke { by: owner(), reason, only_token: None })
                {
                    if revoked.consumed_token.get() <= next.ledger.newest {
                        next.breach(Breach::TokenDidNotGrow);
                    }
                    next.ledger.newest = revoked.consumed_token.get();
                    next.ledger.promised.retain(|(token, ..)| *token != revoked.token.get());
                }
            }
            Step::Restart => {
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
        vec![
            Property::always("P1 one holder", |_, world: &World| {
                world.ledger.breach != Some(Breach::TwoHolders) && world.live().count() <= 1
            }),
            Property::always("P2 tokens only grow", |_, world: &World| {
                world.ledger.breach != Some(Breach::TokenDidNotGrow)
            }),
            Property::always("P3 renewal revives nothing", |_, world: &World| {
                world.ledger.breach != Some(Breach::Revived)
            }),
            Property::always(STALE_WRITE, |_, world: &World| !world.downstream.stale_write),
            Property::always("a live holder that renews in time never loses", |_, world: &World| {
                world.ledger.breach != Some(Breach::Robbed)
            }),
            Property::always("a dead holder's key becomes free", |_, world: &World| {
                world.ledger.breach != Some(Breach::Stuck)
            }),
            Property::always(
                "no client believes in a lease for longer than it was promised",
                |_, world: &World| world.ledger.breach != Some(Breach::BelievesTooLong),
            ),
        ]
    }
}
