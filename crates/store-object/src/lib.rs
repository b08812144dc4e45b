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
mod holder;
mod limits;
mod object_names;
mod observations;
mod probe;
#[cfg(feature = "gates")]
mod request_hook;
mod shared;
mod storage;
mod view;

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

pub use cas::{Cas, CasError, ObjectVersion, ReadObject, WriteResult};
use change::{ObjectCall, PossibleWrites};
pub use cloud::Cloud;
pub use observations::over_after_ms;
pub use probe::{ProbeCheck, ProbeReport, ProbeVerdict, probe};
#[cfg(feature = "gates")]
pub use request_hook::{ObjectRequest, ObjectRequestHook, ResponseFate};
use shared::ObjectStoreInner;
pub use storage::{Storage, probe_place};

use async_trait::async_trait;
use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::operation::{StoreBackend, StoreRequest, StoreResponse, unsupported};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, Capabilities, HoldRef, ObjectUrl, StoreError,
};
use fencehold_net::{Actor, PendingCall};

/// How long a call may go on after its caller's timeout, to say what is known.
const GRACE: Duration = Duration::from_millis(100);

/// How long a grant whose caller has gone is looked for: after that, its ttl ends it.
const SETTLE_WITHIN: Duration = Duration::from_secs(30);

/// 128 random bits that no other handle has: what makes its nonces its own.
#[derive(Clone, Copy, Debug)]
pub struct NonceSeed(pub [u8; 16]);

impl NonceSeed {
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
        Ok(NonceSeed(bits))
    }
}

/// Leases in object storage.
pub struct ObjectStore {
    inner: Arc<ObjectStoreInner>,
    hold_changes: Arc<HoldChanges>,
    actor: Actor<Arc<ObjectStoreInner>>,
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
    pub fn open(place: &ObjectUrl, clock: Arc<dyn Clock>, seed: NonceSeed) -> Result<Self, StoreError> {
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
        seed: NonceSeed,
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
        let inner = Arc::new(ObjectStoreInner::new(cas, clock, can, place.to_string(), place.options, seed));
        let state = Arc::clone(&inner);
        let actor = Actor::start("fencehold-object", move |_| Ok(state))?;
        Ok(ObjectStore { inner, hold_changes: Arc::default(), actor })
    }

    /// Runs a call on the store's own thread, until its caller's timeout.
    async fn run<T: Send + 'static>(
        &self,
        call: &CallContext,
        act: impl AsyncFnOnce(ObjectCall<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (namespace, timeout_ms) = (call.namespace.clone(), call.timeout_ms);
        let work = async move |inner: &Arc<ObjectStoreInner>| {
            let doubt = PossibleWrites::default();
            let act = act(ObjectCall { inner, namespace: &namespace, doubt: &doubt });
            inner.in_time(timeout_ms, &doubt, act).await.0
        };
        self.actor.call(work).await
    }

    /// Takes one of the keys, or says who has them. There is no line to stand in: the caller asks again.
    async fn acquire_lease(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        let (namespace, hold_id) = (call.namespace.clone(), request.hold_id);
        // For a key that is closed and opens soon. No longer: who waits must see what becomes of the key meanwhile.
        let wait_ms = request.wait_ms.min(call.timeout_ms);
        let timeout_ms = call.timeout_ms.saturating_add(wait_ms);
        let granted_in = namespace.clone();
        let work = async move |inner: &Arc<ObjectStoreInner>, _: &PendingCall| {
            let doubt = Arc::new(PossibleWrites::default());
            let (acting, sends) = (Arc::clone(inner), Arc::clone(&doubt));
            let mut act: PendingAcquire = Box::pin(async move {
                let call = ObjectCall { inner: &acting, namespace: &namespace, doubt: &sends };
                let acquired = call.acquire(request.clone(), wait_ms).await;
                if let Err(error) = &acquired {
                    // There is no line: its caller polls.
                    acting.contention.acquire_failed(&namespace, &request, error, false);
                }
                acquired
            });
            let (answer, is_over) = inner.in_time(timeout_ms, &doubt, act.as_mut()).await;
            (answer, (!is_over).then_some(act))
        };
        let undo = async move |inner: &Arc<ObjectStoreInner>,
                               done: (Result<_, _>, Option<PendingAcquire>)| {
            let (mut answer, unfinished) = done;
            if let Some(act) = unfinished {
                // The caller does not know that the outcome is unknown, so nothing asks again: it is gone on with to its end.
                answer = tokio::time::timeout(SETTLE_WITHIN, act).await.unwrap_or(answer);
            }
            let Ok(AcquiredLease { key, grant, .. }) = answer else { return };
            // What was resumed is known to more than this call.
            if grant.resumed {
                return;
            }
            let unheard = HoldRef { key, hold_id, token: grant.token };
            let doubt = PossibleWrites::default();
            let call = ObjectCall { inner, namespace: &granted_in, doubt: &doubt };
            if let Err(error) = call.give_back(&unheard).await {
                let key = unheard.key;
                tracing::warn!(%key, %error, "a lease whose caller has gone ends only with its ttl");
            }
        };
        self.actor.call_or_undo(work, undo).await?.0
    }
}

type PendingAcquire = Pin<Box<dyn Future<Output = Result<AcquiredLease, StoreError>> + Send>>;

#[async_trait]
impl StoreBackend for ObjectStore {
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        if let StoreRequest::Acquire(request) = ask {
            return self.acquire_lease(call, request).await.map(StoreResponse::Acquired);
        }
        if let StoreRequest::Contention(request) = &ask {
            return Ok(StoreResponse::Contention(self.inner.contention.list(&call.namespace, request)));
        }
        let answer = self.run(call, async move |call| call.carry_out(ask).await).await?;
        if let StoreResponse::Revoked { ended, .. } = &answer {
            self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
        }
        Ok(answer)
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.can
    }

    fn requests_sent(&self) -> Option<u64> {
        self.inner.cas.requests_sent()
    }

    async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        self.run(call, async |call| call.inner.closed_for_ms(call.namespace).await)
            .await
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        Some(&self.inner.measures)
    }

    /// Only of what is done through this handle: object storage tells nothing of what others do.
    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        Some(&self.hold_changes)
    }

    async fn close(&self) {
        self.actor.close().await;
    }
}

impl ObjectStoreInner {
    /// Waits for a call until its caller's timeout. False: it is not over, and may have been carried out in part.
    async fn in_time<T>(
        &self,
        timeout_ms: u64,
        doubt: &PossibleWrites,
        act: impl Future<Output = Result<T, StoreError>>,
    ) -> (Result<T, StoreError>, bool) {
        let timeout = Duration::from_millis(timeout_ms).saturating_add(GRACE);
        let place = &self.place;
        match tokio::time::timeout(timeout, act).await {
            // 'Nothing was done' is true of the part that failed; another part of the same call may have been done.
            Ok(Err(error @ StoreError::Unavailable { .. })) if doubt.is_there() => {
                (Err(error.or_unknown()), true)
            }
            Ok(answer) => (answer, true),
            Err(_) if doubt.is_there() => {
                let why = match doubt.last_why() {
                    Some(why) => {
                        format!("{place} kept answering for {timeout_ms} ms; its last answer: {why}")
                    }
                    None => format!("no answer came from {place} within {timeout_ms} ms"),
                };
                (Err(StoreError::OutcomeUnknown { message: why }), false)
            }
            Err(_) => {
                let why = format!("{place} did not answer within {timeout_ms} ms");
                (Err(StoreError::Unavailable { message: why }), true)
            }
        }
    }
}

impl ObjectCall<'_> {
    async fn carry_out(&self, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let ObjectCall { inner, namespace, .. } = *self;
        Ok(match ask {
            StoreRequest::Renew(holds) => StoreResponse::Renewed(self.renew(holds).await?),
            StoreRequest::Release(holds) => StoreResponse::Released(self.release(holds).await?),
            StoreRequest::Revoke { request, .. } => {
                StoreResponse::Revoked { ended: self.revoke(&request).await?, next: None }
            }
            StoreRequest::Get(key) => StoreResponse::Lease(inner.get(namespace, &key).await?),
            StoreRequest::List(request) => StoreResponse::Leases(inner.list(namespace, &request).await?),
            StoreRequest::Advance { by, increment } => {
                StoreResponse::Advanced(self.advance(&by, increment).await?)
            }
            StoreRequest::Quota(request) => StoreResponse::Quota(self.limits(&request).await?),
            StoreRequest::Status => StoreResponse::Status(inner.status(namespace).await?),
            StoreRequest::Stats(request) => StoreResponse::Stats(inner.stats(namespace, request).await?),
            StoreRequest::Events(_) => {
                let message =
                    "list events: a bucket keeps only how the last holds of each key ended".to_owned();
                return Err(StoreError::Unsupported { store: inner.can.store.to_owned(), message });
            }
            ask => return Err(unsupported(inner.can.store, &ask)),
        })
    }
}
