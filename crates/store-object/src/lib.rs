//! `s3://`, `gs://`, `az://`: leases in object storage, with no server at all.
//!
//! Nouns: a [`Cas`] is storage that writes on a condition; a *writing* is one version of an object; the *body* is what
//! is in it: the record of one key, a fresh nonce and a sequence number. An *observation* is since when a handle has seen
//! the same writing. A *change* reads, lets the rules decide, and writes on the condition that the writing is still the
//! one that was read; an *attempt* is a write whose outcome is not known.
//!
//! - The token is a counter in the body: no cloud's version numbers are promised to grow.
//! - Release writes 'free' and keeps the counter. No lease's object is ever deleted.
//! - A contender takes over when it has seen the same writing for [`over_after_ms`] of what it lasts.
//!
//! Deliberately absent: waiting in line, preemption and events, which would need a process that is always there; retries
//! of conditional writes that know nothing of their content.

mod body;
mod cas;
mod change;
mod cloud;
mod force;
#[cfg(feature = "gates")]
mod gate;
mod inner;
mod limits;
mod look;
mod name;
mod observe;
mod probe;
mod storage;
mod take;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fencehold_core::{Key, Owner, Refusal};

pub use cas::{Cas, CasError, Object, Version, Written};
use change::Doubt;
pub use cloud::Cloud;
#[cfg(feature = "gates")]
pub use gate::{Fate, Gate, Request};
use inner::Inner;
pub use observe::over_after_ms;
pub use probe::{Check, ProbeReport, Verdict, probe};
pub use storage::{Storage, probe_place};

use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, CallContext, Capabilities, EventPage, HoldListener,
    HoldRef, LeasePage, LeaseStore, LeaseView, ListEventsRequest, ListLeasesRequest, ObjectUrl, QuotaRequest,
    QuotaView, ReleasedLease, RenewLeaseBatchResponse, RevokeLeasesRequest, RevokedLease, StoreError,
    StoreStatus, Subscription,
};
use fencehold_net::{Actor, Caller};

/// How long a call may go on after its caller's patience, to say what is known.
const GRACE: Duration = Duration::from_millis(100);

/// How long a grant that nobody heard of is looked for: after that, its ttl ends it.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// 128 random bits that no other handle has: what makes its nonces its own.
#[derive(Clone, Copy, Debug)]
pub struct Seed(pub [u8; 16]);

impl Seed {
    /// Draws one.
    #[expect(
        clippy::disallowed_methods,
        reason = "a program that opens a store by its URL has no randomness to give"
    )]
    pub fn draw() -> Result<Self, StoreError> {
        let mut bits = [0; 16];
        getrandom::fill(&mut bits).map_err(|error| StoreError::Unavailable {
            message: format!("no randomness can be had: {error}"),
        })?;
        Ok(Seed(bits))
    }
}

/// Leases in object storage.
pub struct ObjectStore {
    inner: Arc<Inner>,
    hold_changes: Arc<HoldChanges>,
    actor: Actor<Arc<Inner>>,
}

impl fmt::Debug for ObjectStore {
    /// Where it is, and nothing of what it has seen: hashes of hold ids are among that.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ObjectStore")
            .field("place", &self.inner.place)
            .finish_non_exhaustive()
    }
}

impl ObjectStore {
    /// Opens the store that a place names, with credentials as that cloud's tools find them. Unless the place says
    /// otherwise, the storage is probed first: one that lets two writers win is refused. Once a process is enough.
    pub fn open(place: &ObjectUrl, clock: Arc<dyn Clock>, seed: Seed) -> Result<Self, StoreError> {
        let cloud = Arc::new(Cloud::open(place)?);
        let store = Self::open_on(Arc::clone(&cloud) as Arc<dyn Cas>, place, clock, seed)?;
        if place.options.probe {
            let place = place.clone();
            store
                .actor
                .call_blocking(async move |_| probe::once(&*cloud, &place, seed).await)?;
        }
        Ok(store)
    }

    /// Opens a store on storage that is there already, without probing it.
    pub fn open_on(
        cas: Arc<dyn Cas>,
        place: &ObjectUrl,
        clock: Arc<dyn Clock>,
        seed: Seed,
    ) -> Result<Self, StoreError> {
        let can = Capabilities {
            store: place.scheme.name(),
            supports_fair_waiting: false,
            supports_waiting: false,
            supports_preemption: false,
            durable: true,
            supports_jobs: false,
            min_ttl_ms: place.options.ttl_ms_min,
        };
        let inner = Arc::new(Inner::new(cas, clock, can, place.to_string(), place.options, seed));
        let state = Arc::clone(&inner);
        let actor = Actor::start("fencehold-object", move |_| Ok(state))?;
        Ok(ObjectStore { inner, hold_changes: Arc::default(), actor })
    }

    /// Runs a call on the store's own thread, for as long as its caller's patience lasts.
    async fn run<T, F>(
        &self,
        call: &CallContext,
        act: impl FnOnce(Arc<Inner>, Arc<Doubt>) -> F + Send + 'static,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        self.run_or(call, 0, act, None).await
    }

    /// The same; it may wait for so long on top of that, and what was done for a caller that has gone is undone by
    /// `undo`.
    async fn run_or<T, F>(
        &self,
        call: &CallContext,
        wait_ms: u64,
        act: impl FnOnce(Arc<Inner>, Arc<Doubt>) -> F + Send + 'static,
        undo: Option<Undo<T>>,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        let patience_ms = call.timeout_ms.saturating_add(wait_ms);
        let work = async move |inner: &Arc<Inner>, _: &Caller| {
            let doubt = Arc::new(Doubt::default());
            let mut act = Box::pin(act(Arc::clone(inner), Arc::clone(&doubt)));
            let patience = Duration::from_millis(patience_ms).saturating_add(GRACE);
            match tokio::time::timeout(patience, &mut act).await {
                // 'Nothing was done' is true of the part that failed; another part of the same call may have been done.
                Ok(Err(error @ StoreError::Unavailable { .. })) if doubt.is_there() => {
                    (Err(error.or_unknown()), None)
                }
                Ok(answer) => (answer, None),
                Err(_) if doubt.is_there() => {
                    let place = &inner.place;
                    let why = match doubt.last_why() {
                        Some(why) => {
                            format!("{place} kept answering for {patience_ms} ms; its last answer: {why}")
                        }
                        None => format!("no answer came from {place} within {patience_ms} ms"),
                    };
                    (Err(StoreError::OutcomeUnknown { message: why }), Some(act))
                }
                Err(_) => {
                    let why = format!("{} did not answer within {patience_ms} ms", inner.place);
                    (Err(StoreError::Unavailable { message: why }), None)
                }
            }
        };
        let undo = async move |inner: &Arc<Inner>, response: (Result<T, StoreError>, Option<Pin<Box<F>>>)| {
            let (mut answer, unfinished) = response;
            let Some(undo) = undo else { return };
            if let Some(act) = unfinished {
                // The caller does not know that the outcome is unknown, so nothing asks again: it is gone on with to its end.
                let settled = tokio::time::timeout(SETTLE_WITHIN, act).await;
                answer = settled.unwrap_or(answer);
            }
            if let Ok(done) = answer {
                undo(Arc::clone(inner), done).await;
            }
        };
        self.actor.call_or_undo(work, undo).await?.0
    }
}

/// Undoes what was done for a caller that has gone.
type Undo<T> = Box<dyn FnOnce(Arc<Inner>, T) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send>;

#[async_trait]
impl LeaseStore for ObjectStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.can
    }

    fn requests_sent(&self) -> Option<u64> {
        self.inner.cas.requests_sent()
    }

    /// Takes one of the keys, or says who has them. There is no line to stand in: the caller asks again.
    async fn acquire(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        let (namespace, hold) = (call.namespace.clone(), request.hold_id);
        // For a key that is closed and opens soon. No longer: who waits must see what becomes of the key meanwhile.
        let wait_ms = request.wait_ms.min(call.timeout_ms);
        let act = {
            let namespace = namespace.clone();
            move |inner: Arc<Inner>, doubt: Arc<Doubt>| async move {
                inner.acquire(&namespace, request, wait_ms, &doubt).await
            }
        };
        let undo: Undo<AcquiredLease> = Box::new(move |inner, AcquiredLease { key, grant, .. }| {
            Box::pin(async move {
                // What was resumed is known to more than this call.
                if grant.resumed {
                    return;
                }
                let unheard = HoldRef { key, hold_id: hold, token: grant.token };
                if let Err(error) = inner.give_back(&namespace, &unheard).await {
                    let key = unheard.key;
                    tracing::warn!(%key, %error, "a lease that nobody picked up ends only with its ttl");
                }
            })
        });
        self.run_or(call, wait_ms, act, Some(undo)).await
    }

    async fn renew(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<RenewLeaseBatchResponse, StoreError> {
        let namespace = call.namespace.clone();
        let act = move |inner: Arc<Inner>, doubt| async move { inner.renew(&namespace, holds, &doubt).await };
        self.run(call, act).await
    }

    async fn release(
        &self,
        call: &CallContext,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<ReleasedLease, Refusal>>, StoreError> {
        let namespace = call.namespace.clone();
        let act =
            move |inner: Arc<Inner>, doubt| async move { inner.release(&namespace, holds, &doubt).await };
        self.run(call, act).await
    }

    async fn revoke(
        &self,
        call: &CallContext,
        request: RevokeLeasesRequest,
    ) -> Result<Vec<RevokedLease>, StoreError> {
        let namespace = call.namespace.clone();
        let act = move |inner: Arc<Inner>, doubt: Arc<Doubt>| async move {
            inner.revoke(&namespace, &request, &doubt).await
        };
        let ended = self.run(call, act).await?;
        self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
        Ok(ended)
    }

    /// Only of what is done through this handle: object storage tells nothing of what others do.
    fn on_hold_change(&self, listener: HoldListener) -> Option<Subscription> {
        Some(self.hold_changes.subscribe(listener))
    }

    async fn get(&self, call: &CallContext, key: Key) -> Result<Option<LeaseView>, StoreError> {
        let namespace = call.namespace.clone();
        let act = move |inner: Arc<Inner>, _| async move { inner.get(&namespace, &key).await };
        self.run(call, act).await
    }

    async fn list(&self, call: &CallContext, request: ListLeasesRequest) -> Result<LeasePage, StoreError> {
        let namespace = call.namespace.clone();
        let act = move |inner: Arc<Inner>, _| async move { inner.list(&namespace, &request).await };
        self.run(call, act).await
    }

    async fn list_events(&self, _: &CallContext, _: ListEventsRequest) -> Result<EventPage, StoreError> {
        let what = "tell events: a bucket keeps only how the last holds of each key ended".to_owned();
        Err(StoreError::Unsupported { store: self.inner.can.store.to_owned(), message: what })
    }

    async fn advance(&self, call: &CallContext, by: Owner, lift: u64) -> Result<AdvancedStore, StoreError> {
        let act =
            move |inner: Arc<Inner>, doubt: Arc<Doubt>| async move { inner.advance(&by, lift, &doubt).await };
        self.run(call, act).await
    }

    async fn status(&self, call: &CallContext) -> Result<StoreStatus, StoreError> {
        let namespace = call.namespace.clone();
        self.run(call, move |inner, _| async move { inner.status(&namespace).await })
            .await
    }

    async fn quota(&self, call: &CallContext, request: QuotaRequest) -> Result<QuotaView, StoreError> {
        let namespace = call.namespace.clone();
        let act = move |inner: Arc<Inner>, doubt: Arc<Doubt>| async move {
            inner.limits(&namespace, &request, &doubt).await
        };
        self.run(call, act).await
    }

    async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        let namespace = call.namespace.clone();
        self.run(call, move |inner, _| async move { inner.closed_for_ms(&namespace).await })
            .await
    }

    async fn close(&self) {
        self.actor.close().await;
    }
}
