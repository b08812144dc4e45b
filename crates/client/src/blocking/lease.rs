//! Leases, blocking.

use std::time::Duration;

use fencehold_contract::HoldRef;
use fencehold_core::{Key, Owner, Task, Token};

use crate::error::{Error, LostCause};
use crate::wake::block_on;
use crate::watch::{LeaseSnapshot, LeaseState, YieldRequest};

/// The terms on which a lease is requested. See [`crate::LeaseBuilder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is requested until `acquire` or `try_acquire` is called"]
pub struct LeaseBuilder {
    inner: crate::LeaseBuilder,
}

impl LeaseBuilder {
    pub(super) fn new(inner: crate::LeaseBuilder) -> Self {
        LeaseBuilder { inner }
    }

    /// What the lease serves.
    pub fn task(self, task: impl AsRef<str>) -> Self {
        LeaseBuilder { inner: self.inner.task(task) }
    }

    /// Who holds it. Default: the handle's owner.
    pub fn owner(self, owner: impl AsRef<str>) -> Self {
        LeaseBuilder { inner: self.inner.owner(owner) }
    }

    /// How long a grant or a renewal lasts. Default: 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        LeaseBuilder { inner: self.inner.ttl(ttl) }
    }

    /// How long the lease may be held in all. Default: for ever.
    pub fn max_age(self, max_age: Duration) -> Self {
        LeaseBuilder { inner: self.inner.max_age(max_age) }
    }

    /// Its rank. Default: 0.
    pub fn priority(self, priority: i16) -> Self {
        LeaseBuilder { inner: self.inner.priority(priority) }
    }

    /// How long to stand in line. Default: for as long as it takes.
    pub fn wait(self, wait: Duration) -> Self {
        LeaseBuilder { inner: self.inner.wait(wait) }
    }

    /// Asks a holder of lower priority to yield within this time. See [`crate::LeaseBuilder::preempt_within`].
    pub fn preempt_within(self, within: Duration) -> Self {
        LeaseBuilder { inner: self.inner.preempt_within(within) }
    }

    /// The largest token that the caller has ever seen for the (first) key.
    pub fn seen_token(self, token: Token) -> Self {
        LeaseBuilder { inner: self.inner.seen_token(token) }
    }

    /// Takes the key if it is free now. See [`crate::LeaseBuilder::try_acquire`].
    pub fn try_acquire(self) -> Result<Lease, Error> {
        block_on(self.inner.try_acquire()).map(Lease::new)
    }

    /// Takes the key, standing in line for it. See [`crate::LeaseBuilder::acquire`].
    pub fn acquire(self) -> Result<Lease, Error> {
        block_on(self.inner.acquire()).map(Lease::new)
    }
}

/// A lease that is held, and renewed until it is released or dropped. See [`crate::Lease`].
#[derive(Debug)]
#[must_use = "a lease is given back as soon as its guard is dropped"]
pub struct Lease {
    inner: crate::Lease,
}

impl Lease {
    pub(super) fn new(inner: crate::Lease) -> Self {
        Lease { inner }
    }

    /// Which key is held.
    pub fn key(&self) -> &Key {
        self.inner.key()
    }

    /// The fencing token.
    pub fn token(&self) -> Token {
        self.inner.token()
    }

    /// Who holds it.
    pub fn owner(&self) -> &Owner {
        self.inner.owner()
    }

    /// What it serves.
    pub fn task(&self) -> Option<&Task> {
        self.inner.task()
    }

    /// What this holder shows at a fence. See [`crate::Lease::key_token`].
    pub fn key_token(&self) -> crate::fence::KeyToken {
        self.inner.key_token()
    }

    /// Whether it can be relied on now. Work that goes on for long looks at this between its steps.
    pub fn state(&self) -> LeaseState {
        self.inner.state()
    }

    /// When the lease ends at the latest unless it is renewed. See [`crate::Lease::deadline_ms`].
    pub fn deadline_ms(&self) -> u64 {
        self.inner.deadline_ms()
    }

    /// When this guard takes the lease for lost unless it is renewed. See [`crate::Lease::lost_at_ms`].
    pub fn lost_at_ms(&self) -> u64 {
        self.inner.lost_at_ms()
    }

    /// The request of a contender that this holder yield, if there is one.
    pub fn yield_request(&self) -> Option<YieldRequest> {
        self.inner.yield_request()
    }

    /// Blocks until a contender requests that this holder yield. `None`: the lease ended first.
    pub fn yield_requested(&self) -> Option<YieldRequest> {
        block_on(self.inner.yield_requested())
    }

    /// Blocks until the lease is lost, and says why.
    pub fn lost(&self) -> LostCause {
        block_on(self.inner.lost())
    }

    /// Follows the lease from another thread.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch { inner: self.inner.watch() }
    }

    /// Does work under the lease. `Ok` means that the lease was still held when the work ended. Work on a thread cannot
    /// be stopped from outside: if it is long, let it look at [`state`](Lease::state).
    pub fn run<T>(&self, work: impl FnOnce(&Lease) -> T) -> Result<T, Error> {
        block_on(self.inner.run(async { work(self) }))
    }

    /// Gives the lease back. See [`crate::Lease::release`].
    pub fn release(self) -> Result<(), Error> {
        block_on(self.inner.release())
    }

    /// Ends the guard and leaves the lease to who has the hold. See [`crate::Lease::detach`].
    pub fn detach(self) -> Result<HoldRef, Error> {
        self.inner.detach()
    }

    /// The same guard for async code.
    pub fn into_async(self) -> crate::Lease {
        self.inner
    }
}

/// Follows one lease. See [`crate::LeaseWatch`].
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    inner: crate::LeaseWatch,
}

impl LeaseWatch {
    /// How it stands now.
    pub fn snapshot(&self) -> LeaseSnapshot {
        self.inner.snapshot()
    }

    /// Blocks until there is something new. See [`crate::LeaseWatch::changed`].
    pub fn changed(&mut self) -> LeaseSnapshot {
        block_on(self.inner.changed())
    }

    /// Blocks until the lease is lost, and says why.
    pub fn lost(&self) -> LostCause {
        block_on(self.inner.lost())
    }
}
