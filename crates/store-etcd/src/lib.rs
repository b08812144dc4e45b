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
mod acquire_decision;
mod advance;
mod change;
mod codec;
mod grpc_client;
mod hold_changes;
mod holder;
mod key_names;
mod limits;
mod messages;
mod probe;
#[cfg_attr(
    not(feature = "gates"),
    expect(dead_code, unreachable_pub, reason = "only a test stands in the way")
)]
mod request_hook;
mod snapshot;
#[cfg(feature = "gates")]
mod test_control;
mod undelivered;
mod view;
mod wait_queue;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use fencehold_core::{HoldHash, Key, Namespace, Token};

use self::acquire::Acquisition;
use self::key_names::KeyNames;
pub use self::probe::{EtcdFinding, EtcdMember, EtcdVerdict};
use self::request_hook::Gate;
#[cfg(feature = "gates")]
pub use self::request_hook::{EtcdRequest, EtcdRequestHook};
use self::snapshot::Snapshot;
use self::undelivered::AcquireResult;
use fencehold_contract::clock::Clock;
use fencehold_contract::contention::HandleContention;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::operation::{StoreBackend, StoreRequest, StoreResponse, unsupported};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, Capabilities, EtcdUrl, StoreError,
};
use fencehold_net::{Actor, CallBudget, Closing, HoldFeeds, PendingCall};

use self::grpc_client::GrpcClient;

const STORE: &str = "etcd:";
/// etcd's own least, at its default election timeout of a second. Above it, etcd counts whole seconds: a hold whose holder
/// died ends at its ttl rounded up.
const TTL_MS_MIN: u64 = 2_000;
/// How many holds a handle remembers, so that a renewal needs no look beforehand. What is forgotten is looked up.
const KNOWN_MAX: usize = 100_000;

/// A store in an etcd cluster.
pub struct EtcdStore {
    actor: Actor<Rc<EtcdInner>>,
    url: EtcdUrl,
    sent: Arc<AtomicU64>,
    hold_changes: Arc<HoldChanges>,
    measures: Arc<StoreMetrics>,
    contention: Arc<HandleContention>,
}

impl EtcdStore {
    /// A handle on the store that a URL names. Members are reached for when the first request comes.
    pub fn open(url: &EtcdUrl, clock: Arc<dyn Clock>) -> Result<Self, StoreError> {
        Self::start(url, clock, Gate::default())
    }

    /// The same, with something standing between the store and the cluster.
    #[cfg(feature = "gates")]
    pub fn open_through(
        url: &EtcdUrl,
        clock: Arc<dyn Clock>,
        gate: Arc<dyn EtcdRequestHook>,
    ) -> Result<Self, StoreError> {
        Self::start(url, clock, Gate(Some(gate)))
    }

    fn start(url: &EtcdUrl, clock: Arc<dyn Clock>, gate: Gate) -> Result<Self, StoreError> {
        let (sent, hold_changes) = (Arc::<AtomicU64>::default(), Arc::<HoldChanges>::default());
        let (place, counter, changes) = (url.clone(), Arc::clone(&sent), Arc::clone(&hold_changes));
        let measures = Arc::new(StoreMetrics::counts_only());
        let written = Arc::clone(&measures);
        let contention = Arc::new(HandleContention::new(Arc::clone(&clock)));
        let contended = Arc::clone(&contention);
        let actor = Actor::start("fencehold-etcd", move |closing| {
            Ok(Rc::new(EtcdInner {
                wire: GrpcClient::new(&place, counter, gate)?,
                names: KeyNames::new(&place.prefix),
                clock,
                place: place.to_string().into(),
                closing,
                known: RefCell::default(),
                feeds: HoldFeeds::new(changes),
                measures: written,
                contention: contended,
            }))
        })?;
        Ok(EtcdStore { actor, url: url.clone(), sent, hold_changes, measures, contention })
    }

    /// Carries out a call on the thread of this handle.
    async fn ask<T: Send + 'static>(
        &self,
        call: &CallContext,
        work: impl AsyncFnOnce(&mut EtcdCall<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (namespace, timeout_ms) = (call.namespace.clone(), call.timeout_ms);
        let work = async move |core: &Rc<EtcdInner>| work(&mut core.call(namespace, timeout_ms, 0)).await;
        self.actor.call(work).await
    }

    async fn acquire_lease(
        &self,
        call: &CallContext,
        request: AcquireLeaseRequest,
    ) -> Result<AcquiredLease, StoreError> {
        let (namespace, timeout_ms) = (call.namespace.clone(), call.timeout_ms);
        let take = async move |core: &Rc<EtcdInner>, caller: &PendingCall| {
            let call = core.call(namespace.clone(), timeout_ms, request.wait_ms);
            let taken = Acquisition::new(call, request.clone()).run(Some(caller)).await;
            match &taken.answer {
                Ok(_) => core.hear_of_holds(&namespace),
                Err(error) => {
                    core.contention.acquire_failed(&namespace, &request, error, request.wait_ms > 0);
                }
            }
            taken
        };
        let undo = async |core: &Rc<EtcdInner>, taken: AcquireResult| core.undo(taken).await;
        self.actor.call_or_undo(take, undo).await?.answer
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("url", &self.url).finish_non_exhaustive()
    }
}

#[async_trait]
impl StoreBackend for EtcdStore {
    async fn execute(&self, call: &CallContext, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        if let StoreRequest::Acquire(request) = ask {
            return self.acquire_lease(call, request).await.map(StoreResponse::Acquired);
        }
        if let StoreRequest::Contention(request) = &ask {
            return Ok(StoreResponse::Contention(self.contention.list(&call.namespace, request)));
        }
        let answer = self.ask(call, async move |call| call.carry_out(ask).await).await?;
        if let StoreResponse::Revoked { ended, .. } = &answer {
            self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
        }
        Ok(answer)
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

    fn requests_sent(&self) -> Option<u64> {
        Some(self.sent.load(Ordering::Relaxed))
    }

    async fn closed_for_ms(&self, call: &CallContext) -> Result<u64, StoreError> {
        self.ask(call, async |call| call.closed_for_ms().await).await
    }

    async fn ping(&self, call: &CallContext) -> Result<(), StoreError> {
        self.execute(call, StoreRequest::Status).await.map(drop)
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        Some(&self.measures)
    }

    fn hold_changes(&self) -> Option<&Arc<HoldChanges>> {
        Some(&self.hold_changes)
    }

    async fn close(&self) {
        self.actor.close().await;
    }
}

/// What the thread behind a handle works with.
struct EtcdInner {
    wire: GrpcClient,
    names: KeyNames,
    clock: Arc<dyn Clock>,
    /// The URL, without its password.
    place: Arc<str>,
    closing: Closing,
    /// Holds that this handle granted, each as its key was written.
    known: RefCell<HashMap<(Namespace, Key), Snapshot>>,
    feeds: HoldFeeds<Namespace>,
    /// What came of this handle's own writes.
    measures: Arc<StoreMetrics>,
    /// What this handle's own callers contended for.
    contention: Arc<HandleContention>,
}

/// One call: the time that it has, and the namespace that it is about.
#[derive(Clone)]
struct EtcdCall<'a> {
    core: &'a EtcdInner,
    budget: CallBudget,
    namespace: Namespace,
}

impl EtcdCall<'_> {
    async fn carry_out(&mut self, ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        Ok(match ask {
            StoreRequest::Renew(holds) => StoreResponse::Renewed(self.renew(&holds).await?),
            StoreRequest::Release(holds) => StoreResponse::Released(self.release(&holds).await?),
            StoreRequest::Revoke { request, .. } => {
                StoreResponse::Revoked { ended: self.revoke(&request).await?, next: None }
            }
            StoreRequest::Get(key) => StoreResponse::Lease(self.get(&key).await?),
            StoreRequest::List(request) => StoreResponse::Leases(self.list(&request).await?),
            StoreRequest::Advance { by, increment } => {
                StoreResponse::Advanced(self.advance(&by, increment).await?)
            }
            StoreRequest::Quota(request) => StoreResponse::Quota(self.limits(&request).await?),
            StoreRequest::Reopen { .. } => StoreResponse::Reopened(self.open_now().await?),
            StoreRequest::Status => StoreResponse::Status(self.status().await?),
            StoreRequest::Stats(request) => StoreResponse::Stats(self.stats(request).await?),
            ask => return Err(unsupported(STORE, &ask)),
        })
    }
}

impl EtcdInner {
    fn call(&self, namespace: Namespace, timeout_ms: u64, wait_ms: u64) -> EtcdCall<'_> {
        let budget = CallBudget::new(&self.clock, &self.place, timeout_ms, wait_ms);
        EtcdCall { core: self, budget, namespace }
    }

    /// Wall time, for people, and for the age of hold ids.
    fn wall_ms(&self) -> u64 {
        self.clock.now().wall_ms
    }

    fn remember(&self, namespace: &Namespace, written: Snapshot) {
        let mut all = self.known.borrow_mut();
        if all.len() >= KNOWN_MAX {
            all.clear();
        }
        if let Some(at) = written.keys.first() {
            all.insert((namespace.clone(), at.key.clone()), written);
        }
    }

    fn known(&self, namespace: &Namespace, key: &Key, hash: HoldHash, token: Token) -> Option<Snapshot> {
        let known = self.known.borrow().get(&(namespace.clone(), key.clone())).cloned();
        known.filter(|written| written.keys.iter().all(|at| at.is_held_by(hash, token)))
    }

    fn forget(&self, namespace: &Namespace, key: &Key) {
        self.known.borrow_mut().remove(&(namespace.clone(), key.clone()));
    }
}
