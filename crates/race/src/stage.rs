//! What a script stands on: actors with names, calls that can be held on their way, time that moves when it is told to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_store::Call;
use fencehold_store::clock::ManualClock;
use fencehold_store::conformance::{Arena, Power};

use crate::gate::{Fate, Gate, Held};
use crate::naive::Naive;
use crate::ours::Ours;
use crate::protocol::{Act, Lease, Protocol, Told, Wish};
use crate::record::record;
use crate::shelf::Shelf;
use crate::trace::{Trace, fields};
use crate::world::{Side, World};

/// How long an answer that must come may take, in real time. Only a broken store ever waits this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// How often a state that must come is looked for. Every look is a round trip, in which others get their turn.
const LOOKS_MAX: usize = 200_000;

/// Why a script did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    /// The promise is broken.
    Broken(String),
    /// This store cannot show the race, and why.
    NotApplicable(String),
}

/// What a script comes to.
pub(crate) type Played = Result<(), Stop>;

/// Where a script plays.
pub(crate) struct Stage {
    pub(crate) arena: Arc<dyn Arena>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) key: Key,
    cast: Cast,
    /// Makes the hold ids of one run different from those of any other.
    seed: [u8; 8],
    holds: AtomicU64,
}

#[derive(Clone)]
enum Cast {
    Ours(Arc<Ours>),
    Naive(Arc<Naive>),
}

impl Stage {
    pub(crate) fn new(world: &World, side: Side, seed: [u8; 8]) -> Self {
        let trace: Arc<Trace> = Arc::default();
        let gate: Arc<Gate> = Arc::default();
        let shelf: Arc<Shelf> = Arc::default();
        let arena = Arc::clone(&world.arena);
        let cast = match side {
            Side::Ours => Cast::Ours(Arc::new(Ours {
                arena: Arc::clone(&arena),
                call: Call::new(Namespace::default()),
                gate: Arc::clone(&gate),
                trace: Arc::clone(&trace),
                shelf: Arc::clone(&shelf),
            })),
            Side::Naive => Cast::Naive(Arc::new(Naive::new(
                ManualClock::new(),
                Arc::clone(&gate),
                Arc::clone(&trace),
                Arc::clone(&shelf),
            ))),
        };
        let key = Key::new("job/7").expect("a short text without control characters");
        Stage { arena, trace, gate, shelf, key, cast, seed, holds: AtomicU64::new(0) }
    }

    pub(crate) fn actor(&self, name: &'static str) -> Actor<'_> {
        Actor { stage: self, name, owner: name }
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.arena.ttl_ms()
    }

    /// Fencehold's own side, where a script needs more of it than every protocol has.
    pub(crate) fn ours(&self) -> Result<&Ours, Stop> {
        match &self.cast {
            Cast::Ours(ours) => Ok(ours),
            Cast::Naive(_) => Err(Stop::NotApplicable("the naive twin has nothing of the kind".to_owned())),
        }
    }

    fn protocol(&self) -> Arc<dyn Protocol> {
        match &self.cast {
            Cast::Ours(ours) => ours.clone(),
            Cast::Naive(naive) => naive.clone(),
        }
    }

    /// Goes on only where the arena can show this.
    pub(crate) fn needs(&self, power: Power, lacking: &str) -> Played {
        let naive = matches!(self.cast, Cast::Naive(_)) && power == Power::MovesTime;
        if naive || self.arena.powers().contains(&power) {
            return Ok(());
        }
        Err(Stop::NotApplicable(lacking.to_owned()))
    }

    /// Drives a call to its end on this thread.
    pub(crate) fn drive<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        let mut answer = None;
        self.arena.drive(Box::pin(async { answer = Some(future.await) }));
        answer.expect("an arena drives to the end")
    }

    /// Lets store time pass.
    pub(crate) fn passes(&self, ms: u64) -> Played {
        self.needs(Power::MovesTime, "its time cannot be moved")?;
        match &self.cast {
            Cast::Ours(_) => self.arena.pass(ms),
            Cast::Naive(naive) => naive.clock.pass(ms),
        }
        self.trace.note("clock", format!("{} pass", seconds(ms)));
        Ok(())
    }

    /// Makes the live lease on the key run out, however this store does that.
    pub(crate) fn expires(&self, lease: &Lease) {
        match &self.cast {
            Cast::Ours(ours) => self.arena.run_out(&ours.call, &lease.key),
            Cast::Naive(naive) => naive.clock.pass(naive.remaining_ms(&lease.key)),
        }
        let fields = fields!(key: lease.key.as_str(), token: lease.token, forced: true);
        self.trace
            .event("clock", format!("token {} runs out", lease.token), "lease_expired", fields);
    }

    /// Sets the wall clock and leaves store time alone, as an operator or a time server does.
    pub(crate) fn sets_the_wall_clock(&self, by_ms: i64) {
        self.arena.shift_wall(by_ms);
        self.trace.note("clock", format!("the wall clock is set by {} s", by_ms / 1000));
    }

    /// Closes every handle and opens the same data anew.
    pub(crate) fn restarts(&self) {
        self.arena.restart();
        self.trace.event("store", "restarts", "store_restarted", fields!());
    }

    pub(crate) fn holder(&self) -> Option<String> {
        let protocol = self.protocol();
        self.drive(async { protocol.holder(&self.key).await })
    }

    /// A promise that must hold here.
    pub(crate) fn must(&self, holds: bool, promise: &str) -> Played {
        if holds {
            return Ok(());
        }
        self.trace.event(
            "verdict",
            format!("broken: {promise}"),
            "promise_broken",
            fields!(promise: promise),
        );
        Err(Stop::Broken(format!("broken: {promise}")))
    }

    fn fresh_hold(&self) -> HoldId {
        let nth = self.holds.fetch_add(1, Ordering::Relaxed);
        let mut bits = [0; 16];
        bits[..8].copy_from_slice(&self.seed);
        bits[8..].copy_from_slice(&nth.to_le_bytes());
        HoldId::from_random(bits)
    }
}

/// One who acts.
#[derive(Clone, Copy)]
pub(crate) struct Actor<'a> {
    stage: &'a Stage,
    pub(crate) name: &'static str,
    owner: &'static str,
}

impl Actor<'_> {
    /// The same actor under another owner's name.
    pub(crate) fn named(self, owner: &'static str) -> Self {
        Actor { owner, ..self }
    }

    /// The terms of an ordinary try: a fresh hold id, the arena's ttl, no waiting.
    pub(crate) fn wish(&self) -> Wish {
        Wish {
            key: self.stage.key.clone(),
            hold: self.stage.fresh_hold(),
            owner: Owner::new(self.owner).expect("a short name"),
            hold_age_ms: 0,
            ttl_ms: self.stage.ttl_ms(),
            wait_ms: 0,
        }
    }

    pub(crate) fn asks(&self, wish: Wish) -> Told {
        self.does(Act::Acquire(wish))
    }

    /// Takes the key, which must be free.
    pub(crate) fn acquires(&self) -> Result<Lease, Stop> {
        match self.asks(self.wish()) {
            Told::Granted(lease) => Ok(lease),
            told => {
                Err(Stop::Broken(format!("broken: a free key is granted, but {} got {told:?}", self.name)))
            }
        }
    }

    pub(crate) fn renews(&self, lease: &Lease) -> Told {
        self.does(Act::Renew(lease.clone()))
    }

    pub(crate) fn releases(&self, lease: &Lease) -> Told {
        self.does(Act::Release(lease.clone()))
    }

    pub(crate) fn revokes(&self) -> Told {
        self.does(Act::Revoke(self.stage.key.clone()))
    }

    pub(crate) fn completes(&self, lease: &Lease, result: &str) -> Told {
        self.does(Act::Complete(lease.clone(), result.to_owned()))
    }

    /// Shows the new token to what the lease protects, before anything is written. The naive twin has no fence.
    pub(crate) fn raises_the_fence(&self, lease: &Lease) {
        if self.stage.ours().is_ok() {
            self.stage.shelf.raise(lease.token);
            self.stage.trace.note(self.name, format!("raises the fence to {}", lease.token));
        }
    }

    pub(crate) fn does(&self, act: Act) -> Told {
        let (stage, protocol) = (self.stage, self.stage.protocol());
        let told = stage.drive(async { act.perform(&*protocol, self.name).await });
        record(&stage.trace, &stage.key, self.name, &act, &told);
        told
    }

    /// The next message of this call meets a fate on its way.
    pub(crate) fn next_meets(&self, message: &'static str, fate: Fate) {
        self.stage.gate.decide(self.name, message, fate);
    }

    /// Begins a call, and returns when its message that changes something is on its way.
    pub(crate) fn begins(&self, act: Act) -> Result<UnderWay, Stop> {
        let held = self.stage.gate.hold(self.name, act.message());
        let under_way = self.starts(act, Some(held));
        if under_way.held.as_ref().is_some_and(Held::is_there) {
            return Ok(under_way);
        }
        Err(Stop::Broken(format!("broken: a call is answered, but {} never got to the gate", self.name)))
    }

    /// Stands in line, and returns when it can be seen there.
    pub(crate) fn waits(&self, wish: Wish) -> Result<UnderWay, Stop> {
        let protocol = self.stage.protocol();
        let in_line = || self.stage.drive(async { protocol.in_line(&self.stage.key).await });
        let before = in_line();
        self.stage
            .trace
            .note(self.name, format!("waits for up to {}", seconds(wish.wait_ms)));
        let under_way = self.starts(Act::Acquire(wish), None);
        for _ in 0..LOOKS_MAX {
            if in_line() > before {
                return Ok(under_way);
            }
            std::thread::yield_now();
        }
        Err(Stop::Broken("broken: whoever waits stands in line".to_owned()))
    }

    fn starts(&self, act: Act, held: Option<Held>) -> UnderWay {
        let (sender, answer) = mpsc::channel();
        let (protocol, arena, who) = (self.stage.protocol(), Arc::clone(&self.stage.arena), self.name);
        let (trace, key) = (Arc::clone(&self.stage.trace), self.stage.key.clone());
        std::thread::spawn(move || {
            arena.drive(Box::pin(async move {
                let told = act.perform(&*protocol, who).await;
                record(&trace, &key, who, &act, &told);
                let _ = sender.send(told);
            }));
        });
        UnderWay { held, answer }
    }

    /// Has come to the end of its work.
    pub(crate) fn exits(&self, reason: &str) {
        let fields = fields!(owner: self.owner, reason: reason);
        self.stage
            .trace
            .event(self.name, format!("exits: {reason}"), "worker_exit", fields);
    }
}

/// A call on its way.
pub(crate) struct UnderWay {
    held: Option<Held>,
    answer: Receiver<Told>,
}

impl UnderWay {
    /// Lets the message through, and gives what its sender is told.
    pub(crate) fn goes_on(mut self) -> Result<Told, Stop> {
        if let Some(held) = self.held.take() {
            held.open();
        }
        self.told()
    }

    /// What its sender is told, which must come.
    pub(crate) fn told(self) -> Result<Told, Stop> {
        let answer = self.answer.recv_timeout(ANSWER_WITHIN);
        answer.map_err(|_| Stop::Broken("broken: every call is answered in time".to_owned()))
    }
}

fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{ms} ms") }
}
