//! `etcd://`: leases in an etcd cluster. A minority of its members can grant nothing.
//!
//! Nouns: the *held key* is there, on an etcd lease, exactly while a key is held, so that etcd's own clock ends a hold; the
//! *record* beside it lasts, and has token and history. Every change is one transaction that finds both as they were seen
//! (`look`, `change`), and is decided by the rules of `fencehold-core`. A waiter is a key of its own (`line`).
//!
//! Deliberately absent: clocks that decide anything. Wall time is on record for people, and to tell the age of a hold
//! id; how long a hold lasts is between the holder's own boot clock and etcd. Also absent: events, and asking a holder
//! to yield.

mod acquire;
mod advance;
mod change;
mod codec;
#[cfg_attr(
    not(feature = "gates"),
    expect(dead_code, unreachable_pub, reason = "only a test stands in the way")
)]
mod gate;
mod hold;
mod holds;
mod limits;
mod line;
mod look;
mod messages;
mod names;
#[cfg(feature = "gates")]
mod powers;
mod probe;
mod unheard;
mod verdict;
mod version;
mod view;
mod wire;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use fencehold_core::{HoldHash, Key, Namespace, Owner, Refusal, Token, ttl};

use self::acquire::Taking;
#[cfg(feature = "gates")]
pub use self::gate::{Gate, Request};
use self::look::{OnLease, Sight};
use self::names::Names;
pub use self::probe::{EtcdFinding, EtcdVerdict};
use self::unheard::Taken;
pub use self::version::EtcdMember;
use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::operation::{check_acquire, check_batch, check_limit, check_prefix};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, CallContext, Capabilities, EtcdUrl, EventPage,
    HoldListener, HoldRef, LeasePage, LeaseStore, LeaseView, ListEventsRequest, ListLeasesRequest,
    QuotaRequest, QuotaView, ReleasedLease, RenewLeaseBatchResponse, RevokeLeasesRequest, RevokeTarget,
    RevokedLease, StoreError, StoreStatus, Subscription,
};
use fencehold_net::{Actor, CallBudget, Caller, Closing, HoldFeeds};

use self::wire::Wire;

const STORE: &str = "etcd:";
/// etcd's own least, at its default election timeout of a second. Above it, etcd counts whole seconds: a hold whose holder
/// died ends at its ttl rounded up.
const TTL_MS_MIN: u64 = 2_000;
/// How many holds a handle remembers, so that a renewal needs no look beforehand. What is forgotten is looked up.
const KNOWN_MAX: usize = 100_000;

/// A store in an etcd cluster.
pub struct EtcdStore {
    actor: Actor<Rc<Core>>,
    url: EtcdUrl,
    sent: Arc<AtomicU64>,
    hold_changes: Arc<HoldChanges>,
}

impl EtcdStore {
    /// A handle on the store that a URL names. Members are reached for when the first request comes.
    pub fn open(url: &EtcdUrl, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::start(
            url,
            clock,
            #[cfg(feature = "gates")]
            None,
        )
    }

    /// The same, with something standing between the store and the cluster.
    #[cfg(feature = "gates")]
    pub fn open_through(
        url: &EtcdUrl,
        clock: Arc<dyn Clock>,
        gate: Arc<dyn Gate>,
    ) -> Result<Self, StoreError> {
        Self::start(url, clock, Some(gate))
    }

    fn start(
        url: &EtcdUrl,
        clock: Arc<dyn Clock>,
        #[cfg(feature = "gates")] gate: Option<Arc<dyn Gate>>,
    ) -> Result<Self, StoreError> {
        let (sent, hold_changes) = (Arc::<AtomicU64>::default(), Arc::<HoldChanges>::default());
        let (place, counter, changes) = (url.clone(), Arc::clone(&sent), Arc::clone(&hold_changes));
        let actor = Actor::start("fencehold-etcd", move |closing| {
            let wire = Wire::new(
                &place,
                counter,
                #[cfg(feature = "gates")]
                gate,
            )?;
            Ok(Rc::new(Core {
                wire,
                names: Names::new(&place.prefix),
                clock,
                place: place.to_string().into(),
                closing,
                known: RefCell::default(),
                feeds: HoldFeeds::new(changes),
            }))
        })?;
        Ok(EtcdStore { actor, url: url.clone(), sent, hold_changes })
    }

    /// Carries out a call on the thread of this handle.
    async fn ask<T: Send + 'static>(
        &self,
        call: &CallContext,
        work: impl AsyncFnOnce(&Core, &mut CallBudget) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let patience_ms = call.timeout_ms;
        self.actor
            .call(async move |core| work(core, &mut core.budget(patience_ms, 0)).await)
            .await
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("url", &self.url).finish_non_exhaustive()
    }
}

#[async_trait]
impl LeaseStore for EtcdStore {
    fn requests_sent(&self) -> Option<u64> {
        Some(self.sent.load(Ordering::Relaxed))
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            store: STORE,
            supports_fair_waiting: true,
            supports_waiting: true,
            supports_preemption: false,
            supports_jobs: false,
            durable: true,
            min_ttl_ms: TTL_MS_MIN,
        }
    }

    async fn acquire(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        ttl::check(request.ttl_ms, TTL_MS_MIN)?;
        check_acquire(&request)?;
        let (namespace, patience_ms) = (call.namespace.clone(), call.timeout_ms);
        let take = async move |core: &Rc<Core>, caller: &Caller| {
            core.acquire(namespace, patience_ms, request, caller).await
        };
        let undo = async |core: &Rc<Core>, taken: Taken| core.undo(taken).await;
        self.actor.call_or_undo(take, undo).await?.answer
    }

    async fn renew(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<RenewLeaseBatchResponse, StoreError> {
        check_batch("renewals", &holds)?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.renew(budget, &space, &holds).await)
            .await
    }

    async fn release(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        check_batch("releases", &holds)?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.release(budget, &space, &holds).await)
            .await
    }

    async fn revoke(
        &self,
        call: &CallContext,
        request: RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        if let RevokeTarget::Prefix(prefix) = &request.target {
            check_prefix(Some(prefix))?;
        }
        let space = call.namespace.clone();
        let ended = self
            .ask(call, async move |core, budget| core.revoke(budget, &space, &request).await)
            .await?;
        self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
        Ok(ended)
    }

    fn on_hold_change(&self, listener: HoldListener) -> Option<Subscription> {
        Some(self.hold_changes.subscribe(listener))
    }

    async fn get(&self, call: &CallContext, key: Key) -> Result<Option<LeaseView>, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.get(budget, &space, &key).await)
            .await
    }

    async fn list(&self, call: &CallContext, request: ListLeasesRequest) -> Result<LeasePage, StoreError> {
        check_limit(request.limit)?;
        check_prefix(request.prefix.as_ref())?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.list(budget, &space, &request).await)
            .await
    }

    async fn list_events(&self, _: &CallContext, _: ListEventsRequest) -> Result<EventPage, StoreError> {
        Err(StoreError::Unsupported { store: STORE.to_owned(), message: "tell events".to_owned() })
    }

    async fn advance(&self, call: &CallContext, by: Owner, lift: u64) -> Result<AdvancedStore, StoreError> {
        self.ask(call, async move |core, budget| core.advance(budget, &by, lift).await)
            .await
    }

    async fn reopen(&self, call: &CallContext, _: Owner) -> Result<(), StoreError> {
        self.ask(call, async move |core, budget| core.open_now(budget).await).await
    }

    async fn quota(&self, call: &CallContext, request: QuotaRequest) -> Result<QuotaView, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.limits(budget, &space, &request).await)
            .await
    }

    async fn status(&self, call: &CallContext) -> Result<StoreStatus, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.status(budget, &space).await)
            .await
    }

    async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, budget| core.closed_for_ms(budget, &space).await)
            .await
    }

    async fn ping(&self, call: &CallContext) -> Result<(), StoreError> {
        self.status(call).await.map(drop)
    }

    async fn close(&self) {
        self.actor.close().await;
    }
}

/// What the thread behind a handle works with.
struct Core {
    wire: Wire,
    names: Names,
    clock: Arc<dyn Clock>,
    /// The URL, without its password.
    place: Arc<str>,
    closing: Closing,
    known: RefCell<HashMap<(Namespace, Key), Known>>,
    feeds: HoldFeeds<Namespace>,
}

/// What this handle knows of a hold that it granted.
#[derive(Clone)]
struct Known {
    hash: HoldHash,
    held: OnLease,
    /// The key as it was written.
    sight: Sight,
}

impl Core {
    fn budget(&self, patience_ms: u64, wait_ms: u64) -> CallBudget {
        CallBudget::new(&self.clock, &self.place, patience_ms, wait_ms)
    }

    /// Wall time, for people, and for the age of hold ids.
    fn wall_ms(&self) -> u64 {
        self.clock.now().wall_ms
    }

    fn remember(&self, namespace: &Namespace, known: Known) {
        let mut all = self.known.borrow_mut();
        if all.len() >= KNOWN_MAX {
            all.clear();
        }
        if let Some(at) = known.sight.keys.first() {
            let name = (namespace.clone(), at.key.clone());
            all.insert(name, known);
        }
    }

    fn known(&self, namespace: &Namespace, key: &Key, hash: HoldHash, token: Token) -> Option<Known> {
        let known = self.known.borrow().get(&(namespace.clone(), key.clone())).cloned();
        known.filter(|known| known.hash == hash && known.held.token == token)
    }

    fn forget(&self, namespace: &Namespace, key: &Key) {
        self.known.borrow_mut().remove(&(namespace.clone(), key.clone()));
    }

    async fn acquire(
        self: &Rc<Self>,
        namespace: Namespace,
        patience_ms: u64,
        request: AcquireLeaseRequest,
        caller: &Caller,
    ) -> Taken {
        let budget = self.budget(patience_ms, request.wait_ms);
        let space = namespace.clone();
        let taken = Taking::new(self, budget, namespace, request).run(Some(caller)).await;
        if taken.answer.is_ok() {
            self.hear_of_holds(&space);
        }
        taken
    }
}
