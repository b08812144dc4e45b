//! What a script stands on: a store or its naive twin, actors with names, and time that moves when it is asked to.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::{AdvancedStore, CallContext, StoreError};
use fencehold_core::job::JobId;
use fencehold_core::{HoldId, Key, Namespace};
use fencehold_test_store::{TestCapability, TestStore, drive};

use crate::actor::RaceActor;
use crate::environment::{Environment, Interrupt, JOB_ID_MS, RaceNames, Side};
use crate::fenced_resource::{FencedResource, PaymentSink};
use crate::gate::MessageGate;
use crate::job::naive::NaiveJobs;
use crate::naive::NaiveLock;
use crate::ours::RealStore;
use crate::protocol::{HeldLease, Protocols, SeenLease};
use crate::report::RaceVerdict;
use crate::trace::{Trace, fields};

/// How often a state that must come is looked for. Every look is a round trip, in which others get their turn.
const LOOKS_MAX: usize = 200_000;
/// How often it is looked for where time passes by itself: for twelve times the ttl in all.
const LIVE_LOOKS_MAX: usize = 2_400;
const LIVE_LOOKS_PER_TTL: u64 = 200;
/// How many effects of a job a race can have undone.
const UNDONE_MAX: usize = 4;

/// Why a script did not come to its end: it is never [`RaceVerdict::Held`].
pub(crate) type ScriptEnd = RaceVerdict;

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
    pub(crate) protocols: Protocols,
    side: PlayedSide,
    /// Whether the store is in use: its time passes by itself, and nothing may stay behind.
    live: bool,
    interrupt: Interrupt,
    /// Makes the hold ids of one run different from those of any other.
    seed: [u8; 8],
    holds: AtomicU64,
}

enum PlayedSide {
    Ours(Arc<RealStore>),
    Naive(ManualClock),
}

impl Script {
    pub(crate) fn new(environment: &Environment, side: Side, seed: [u8; 8]) -> Self {
        let trace: Arc<Trace> = Arc::default();
        let interrupt = environment.interrupt.clone();
        let gate = Arc::new(MessageGate::new(Arc::clone(&trace), interrupt.clone()));
        let resource: Arc<FencedResource> = Arc::default();
        let test_store = Arc::clone(&environment.test_store);
        let names = RaceNames::of(environment, seed);
        let (key, holds) = (names.key.clone(), AtomicU64::new(0));
        let (side, protocols) = match side {
            Side::Ours => {
                let ours = Arc::new(RealStore {
                    test_store: Arc::clone(&test_store),
                    call: CallContext::new(Namespace::default()),
                    gate: Arc::clone(&gate),
                    resource: Arc::clone(&resource),
                    names,
                    undo_holds: (0..UNDONE_MAX).map(|_| fresh_hold(seed, &holds)).collect(),
                    asked: Mutex::default(),
                    live: environment.live,
                });
                (PlayedSide::Ours(Arc::clone(&ours)), Protocols { leases: ours.clone(), jobs: ours })
            }
            Side::Naive => {
                let clock = ManualClock::new();
                let leases = NaiveLock::new(clock.clone(), Arc::clone(&gate), Arc::clone(&resource));
                let jobs = Arc::new(NaiveJobs::new(clock.clone(), Arc::clone(&gate)));
                (PlayedSide::Naive(clock), Protocols { leases: Arc::new(leases), jobs })
            }
        };
        let live = environment.live && matches!(side, PlayedSide::Ours(_));
        let payments = PaymentSink::default();
        Script {
            test_store,
            trace,
            gate,
            resource,
            payments,
            key,
            protocols,
            side,
            live,
            interrupt,
            seed,
            holds,
        }
    }

    pub(crate) fn actor(&self, name: &'static str) -> RaceActor<'_> {
        RaceActor::new(self, name)
    }

    pub(crate) fn ttl_ms(&self) -> u64 {
        self.test_store.ttl_ms()
    }

    /// The shortest ttl that the store accepts.
    pub(crate) fn least_ttl_ms(&self) -> u64 {
        self.test_store.store().capabilities().min_ttl_ms
    }

    /// Fencehold's own side, where a script needs more of it than every protocol has.
    pub(crate) fn ours(&self) -> Result<&RealStore, ScriptEnd> {
        match &self.side {
            PlayedSide::Ours(ours) => Ok(ours),
            PlayedSide::Naive(_) => {
                Err(ScriptEnd::NotApplicable("the naive twin has nothing of the kind".to_owned()))
            }
        }
    }

    /// Goes on only where the arena can show this.
    pub(crate) fn needs(&self, capability: TestCapability) -> ScriptResult {
        let of_the_naive =
            [TestCapability::MovesTime, TestCapability::NoticesLeaving, TestCapability::Advances];
        let naive = self.ours().is_err() && of_the_naive.contains(&capability);
        if naive || self.test_store.test_capabilities().contains(&capability) {
            return Ok(());
        }
        Err(ScriptEnd::NotApplicable(capability.lacking().to_owned()))
    }

    pub(crate) fn time_can_be_moved(&self) -> bool {
        self.needs(TestCapability::MovesTime).is_ok()
    }

    /// Drives a call to its end on this thread.
    pub(crate) fn drive<T: Send>(&self, future: impl Future<Output = T> + Send) -> T {
        drive(&*self.test_store, future)
    }

    /// Asks the store itself for something that it must do.
    pub(crate) fn ask<T: Send>(
        &self,
        request: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, ScriptEnd> {
        let ours = self.ours()?;
        self.must(!self.interrupt.is_set(), "a race goes on until it is interrupted")?;
        self.drive(request).or_else(|error| self.broken(&ours.explain(&error)))
    }

    /// Lets store time pass. Only with [`TestCapability::MovesTime`].
    pub(crate) fn passes(&self, ms: u64) {
        self.moves_time(ms);
        self.trace.note("clock", format!("{} pass", seconds(ms)));
    }

    /// The store's clock is set forward: time passes for it alone. Only with [`TestCapability::MovesTime`].
    pub(crate) fn steps_forward(&self, ms: u64) {
        self.moves_time(ms);
        self.trace
            .note("clock", format!("the store's clock is set forward by {}", seconds(ms)));
    }

    /// Moves store time. Only with [`TestCapability::MovesTime`].
    pub(crate) fn moves_time(&self, ms: u64) {
        match &self.side {
            PlayedSide::Ours(_) => self.test_store.pass(ms),
            PlayedSide::Naive(clock) => clock.advance_ms(ms),
        }
    }

    /// Makes the live lease on the key run out, however this store does that.
    pub(crate) fn expires(&self, lease: &HeldLease) {
        match &self.side {
            PlayedSide::Ours(ours) => self.test_store.run_out(&ours.call, &lease.key),
            PlayedSide::Naive(clock) => {
                clock.advance_ms(self.drive(self.protocols.leases.look(&lease.key)).remaining_ms);
            }
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

    /// The key as anybody can see it.
    pub(crate) fn lease(&self) -> SeenLease {
        self.drive(self.protocols.leases.look(&self.key))
    }

    pub(crate) fn is_held_by(&self, owner: &str) -> bool {
        self.lease().holder.as_deref() == Some(owner)
    }

    /// A promise that must hold here.
    pub(crate) fn must(&self, holds: bool, promise: &str) -> ScriptResult {
        if holds { Ok(()) } else { self.broken(promise) }
    }

    /// Ends the script: the promise is broken, unless the store did not accept what the race needs.
    pub(crate) fn broken<T>(&self, promise: &str) -> Result<T, ScriptEnd> {
        if self.interrupt.is_set() {
            return Err(ScriptEnd::NotApplicable("it was interrupted".to_owned()));
        }
        if let Some(why) = self.trace.not_arranged.get() {
            return Err(ScriptEnd::NotApplicable(format!("it cannot be arranged there: {why}")));
        }
        // What lasted for a ttl may have run out between two steps.
        if self.live && self.trace.term_age_ms() > self.ttl_ms() / 2 {
            let ttl = seconds(self.ttl_ms());
            return Err(ScriptEnd::NotApplicable(format!("it cannot be arranged there in a ttl of {ttl}")));
        }
        let says = format!("broken: {promise}");
        self.trace
            .event("verdict", says.clone(), "promise_broken", fields!(promise: promise));
        Err(ScriptEnd::Broken(says))
    }

    /// A state that must come, and is looked for until it is there.
    pub(crate) fn comes(&self, promise: &str, seen: impl Fn() -> bool) -> ScriptResult {
        self.looks(promise, || Ok(seen()))
    }

    /// The same where a look may be the end of the script.
    pub(crate) fn looks(&self, promise: &str, seen: impl Fn() -> Result<bool, ScriptEnd>) -> ScriptResult {
        let every = Duration::from_millis(self.ttl_ms() / LIVE_LOOKS_PER_TTL);
        for _ in 0..if self.live { LIVE_LOOKS_MAX } else { LOOKS_MAX } {
            if seen()? {
                return Ok(());
            }
            if self.live {
                self.interrupt.wait(every);
            } else {
                std::thread::yield_now();
            }
            if self.interrupt.is_set() {
                break;
            }
        }
        // It was waited for on purpose: no step took too long.
        self.trace.term_began_ms.store(0, Ordering::Relaxed);
        self.broken(promise)
    }

    /// An operator lifts every token, as after a backup was put back, and the time passes for which that closes the store.
    pub(crate) fn is_advanced(&self) -> ScriptResult {
        let ours = self.ours()?;
        let advanced = self.drive(ours.advance("operator")).or_else(|error| {
            self.broken(&format!("a store can be advanced, but {}", ours.explain(&error)))
        })?;
        let AdvancedStore { key_count, ended_count, closed_for_ms, .. } = advanced;
        let says = format!("advances: closed for {}", seconds(closed_for_ms));
        let fields = fields!(keys: key_count, ended: ended_count, closed_for_ms: closed_for_ms);
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
}

impl Drop for Script {
    /// Nothing stays behind in a store that others use, however the script ended.
    fn drop(&mut self) {
        if let (true, Ok(ours)) = (self.live, self.ours()) {
            self.drive(ours.remove_all());
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
