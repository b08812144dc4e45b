//! What a script stands on: a store or its naive twin, actors with names, and time that moves when it is asked to.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencehold_contract::CallContext;
use fencehold_contract::clock::ManualClock;
use fencehold_core::job::JobId;
use fencehold_core::{HoldId, Key, Namespace};
use fencehold_test_store::{TestCapability, TestStore};

use crate::actor::RaceActor;
use crate::environment::{Environment, Side};
use crate::fenced_resource::FencedResource;
use crate::gate::MessageGate;
use crate::job::JobProtocol;
use crate::job::naive::NaiveJobs;
use crate::job::ours::OurJobs;
use crate::job::payment_sink::PaymentSink;
use crate::naive::NaiveLock;
use crate::names::{JOB_ID_MS, RaceNames};
use crate::ours::RealLock;
use crate::protocol::{HeldLease, Protocol};
use crate::trace::{Trace, fields};

/// How often a state that must come is looked for. Every look is a round trip, in which others get their turn.
const LOOKS_MAX: usize = 200_000;
/// How often it is looked for where time passes by itself, and how long every look waits for that: a minute in all.
const REAL_LOOKS_MAX: usize = 2_400;
const REAL_LOOK_EVERY: Duration = Duration::from_millis(25);
/// How many effects of a job a race can have undone.
const UNDONE_MAX: usize = 4;

/// Why a script did not come to its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScriptEnd {
    /// The promise is broken.
    Broken(String),
    /// This store cannot show the race, and why.
    NotApplicable(String),
}

/// What a script comes to.
pub(crate) type ScriptResult = Result<(), ScriptEnd>;

/// Where a script plays.
pub(crate) struct Script {
    pub(crate) test_store: Arc<dyn TestStore>,
    pub(crate) trace: Arc<Trace>,
    pub(crate) gate: Arc<MessageGate>,
    pub(crate) resource: Arc<FencedResource>,
    pub(crate) payments: PaymentSink,
    pub(crate) key: Key,
    pub(crate) jobs: Arc<dyn JobProtocol>,
    cast: Protocols,
    /// Whether the store's time passes by itself and cannot be moved.
    real_time: bool,
    /// Makes the hold ids of one run different from those of any other.
    seed: [u8; 8],
    holds: AtomicU64,
}

#[derive(Clone)]
enum Protocols {
    Ours(Arc<RealLock>),
    Naive(Arc<NaiveLock>),
}

impl Script {
    pub(crate) fn new(environment: &Environment, side: Side, seed: [u8; 8]) -> Self {
        let trace: Arc<Trace> = Arc::default();
        let gate: Arc<MessageGate> = Arc::default();
        let resource: Arc<FencedResource> = Arc::default();
        let test_store = Arc::clone(&environment.test_store);
        let names = RaceNames::of(environment, seed);
        let holds = AtomicU64::new(0);
        let (cast, jobs): (_, Arc<dyn JobProtocol>) = match side {
            Side::Ours => {
                let call = CallContext::new(Namespace::default());
                let ours = RealLock {
                    test_store: Arc::clone(&test_store),
                    call: call.clone(),
                    gate: Arc::clone(&gate),
                    trace: Arc::clone(&trace),
                    resource: Arc::clone(&resource),
                };
                let jobs = OurJobs {
                    test_store: Arc::clone(&test_store),
                    call,
                    gate: Arc::clone(&gate),
                    trace: Arc::clone(&trace),
                    job: names.job,
                    queue: names.queue,
                    undo_queue: names.undo_queue,
                    undo_holds: (0..UNDONE_MAX).map(|_| fresh_hold(seed, &holds)).collect(),
                };
                (Protocols::Ours(Arc::new(ours)), Arc::new(jobs))
            }
            Side::Naive => {
                let clock = ManualClock::new();
                let jobs = NaiveJobs::new(clock.clone(), Arc::clone(&gate), Arc::clone(&trace));
                let naive =
                    NaiveLock::new(clock, Arc::clone(&gate), Arc::clone(&trace), Arc::clone(&resource));
                (Protocols::Naive(Arc::new(naive)), Arc::new(jobs))
            }
        };
        let real_time = environment.real_time && side == Side::Ours;
        let (key, payments) = (names.key, PaymentSink::default());
        Script { test_store, trace, gate, resource, payments, key, jobs, cast, real_time, seed, holds }
    }

    pub(crate) fn actor(&self, name: &'static str) -> RaceActor<'_> {
        RaceActor { script: self, name, owner: name }
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.test_store.ttl_ms()
    }

    /// Fencehold's own side, where a script needs more of it than every protocol has.
    pub(crate) fn ours(&self) -> Result<&RealLock, ScriptEnd> {
        match &self.cast {
            Protocols::Ours(ours) => Ok(ours),
            Protocols::Naive(_) => {
                Err(ScriptEnd::NotApplicable("the naive twin has nothing of the kind".to_owned()))
            }
        }
    }

    pub(crate) fn protocol(&self) -> Arc<dyn Protocol> {
        match &self.cast {
            Protocols::Ours(ours) => ours.clone(),
            Protocols::Naive(naive) => naive.clone(),
        }
    }

    /// Goes on only where the arena can show this.
    pub(crate) fn needs(&self, capability: TestCapability, lacking: &str) -> ScriptResult {
        let of_the_naive =
            [TestCapability::MovesTime, TestCapability::NoticesLeaving, TestCapability::Advances];
        let naive = matches!(self.cast, Protocols::Naive(_)) && of_the_naive.contains(&capability);
        if naive || self.test_store.test_capabilities().contains(&capability) {
            return Ok(());
        }
        Err(ScriptEnd::NotApplicable(lacking.to_owned()))
    }

    /// Drives a call to its end on this thread.
    pub(crate) fn drive<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        let mut answer = None;
        self.test_store.drive(Box::pin(async { answer = Some(future.await) }));
        answer.expect("an arena drives to the end")
    }

    /// Lets store time pass.
    pub(crate) fn passes(&self, ms: u64) -> ScriptResult {
        self.needs(TestCapability::MovesTime, "its time cannot be moved")?;
        self.moves_time(ms);
        self.trace.note("clock", format!("{} pass", seconds(ms)));
        Ok(())
    }

    /// The store's clock is set forward: time passes for it alone. Only with [`TestCapability::MovesTime`].
    pub(crate) fn steps_forward(&self, ms: u64) {
        self.moves_time(ms);
        self.trace
            .note("clock", format!("the store's clock is set forward by {}", seconds(ms)));
    }

    /// Moves store time. Only with [`TestCapability::MovesTime`].
    pub(crate) fn moves_time(&self, ms: u64) {
        match &self.cast {
            Protocols::Ours(_) => self.test_store.pass(ms),
            Protocols::Naive(naive) => naive.clock.advance(ms),
        }
    }

    /// Makes the live lease on the key run out, however this store does that.
    pub(crate) fn expires(&self, lease: &HeldLease) {
        match &self.cast {
            Protocols::Ours(ours) => self.test_store.run_out(&ours.call, &lease.key),
            Protocols::Naive(naive) => naive.clock.advance(naive.remaining_ms(&lease.key)),
        }
        let fields = fields!(key: lease.key.as_str(), token: lease.token, forced: true);
        self.trace
            .event("clock", format!("token {} runs out", lease.token), "lease_expired", fields);
    }

    /// Sets the wall clock and leaves store time alone, as an operator or a time server does.
    pub(crate) fn sets_the_wall_clock(&self, by_ms: i64) {
        self.test_store.shift_wall(by_ms);
        self.trace.note("clock", format!("the wall clock is set by {} s", by_ms / 1000));
    }

    /// Closes every handle and opens the same data anew.
    pub(crate) fn restarts(&self) {
        self.test_store.restart();
        self.trace.event("store", "restarts", "store_restarted", fields!());
    }

    /// How many leases the store counts as held. Fencehold's own side alone counts them.
    pub(crate) fn held(&self) -> Option<u64> {
        self.drive(self.ours().ok()?.held())
    }

    pub(crate) fn holder(&self) -> Option<String> {
        let protocol = self.protocol();
        self.drive(async { protocol.holder(&self.key).await })
    }

    /// A promise that must hold here.
    pub(crate) fn must(&self, holds: bool, promise: &str) -> ScriptResult {
        if holds {
            return Ok(());
        }
        self.trace.event(
            "verdict",
            format!("broken: {promise}"),
            "promise_broken",
            fields!(promise: promise),
        );
        Err(ScriptEnd::Broken(format!("broken: {promise}")))
    }

    /// A state that must come, and is looked for until it is there.
    pub(crate) fn comes(&self, promise: &str, seen: impl Fn() -> bool) -> ScriptResult {
        for _ in 0..self.looks_max() {
            if seen() {
                return Ok(());
            }
            self.lets_others();
        }
        self.must(false, promise)
    }

    /// An operator lifts every token, as after a backup was put back, and the time passes for which that closes the store.
    pub(crate) fn is_advanced(&self) -> ScriptResult {
        let ours = self.ours()?;
        let advanced = match self.drive(ours.advance("operator")) {
            Ok(advanced) => advanced,
            Err(error) => return self.must(false, &format!("a store can be advanced, but {error}")),
        };
        let closed_for_ms = advanced.closed_for_ms;
        let says = format!("advances: closed for {}", seconds(closed_for_ms));
        let fields =
            fields!(keys: advanced.key_count, ended: advanced.ended_count, closed_for_ms: closed_for_ms);
        self.trace.event("operator", says, "store_advanced", fields);
        self.test_store.open_again(closed_for_ms);
        self.trace.note("clock", format!("{} pass", seconds(closed_for_ms)));
        Ok(())
    }

    pub(crate) fn fresh_hold(&self) -> HoldId {
        fresh_hold(self.seed, &self.holds)
    }

    /// The id of a job that no other stage has.
    pub(crate) fn fresh_job(&self) -> JobId {
        let nth = self.holds.fetch_add(1, Ordering::Relaxed);
        let mut bits = [0; 10];
        bits[..8].copy_from_slice(&self.seed);
        bits[8..].copy_from_slice(&nth.to_le_bytes()[..2]);
        JobId::from_random(JOB_ID_MS + 1, bits)
    }

    /// How often a state that must come is looked for.
    pub(crate) fn looks_max(&self) -> usize {
        if self.real_time { REAL_LOOKS_MAX } else { LOOKS_MAX }
    }

    /// Lets others do what is looked for.
    #[expect(
        clippy::disallowed_methods,
        reason = "where the store's time passes by itself, it has to be waited for; the order is made by what is seen"
    )]
    pub(crate) fn lets_others(&self) {
        if self.real_time {
            std::thread::sleep(REAL_LOOK_EVERY);
        } else {
            std::thread::yield_now();
        }
    }
}

fn fresh_hold(seed: [u8; 8], holds: &AtomicU64) -> HoldId {
    let nth = holds.fetch_add(1, Ordering::Relaxed);
    let mut bits = [0; 16];
    bits[..8].copy_from_slice(&seed);
    bits[8..].copy_from_slice(&nth.to_le_bytes());
    HoldId::from_random(bits)
}

pub(crate) fn seconds(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{} s", ms / 1000) } else { format!("{ms} ms") }
}
