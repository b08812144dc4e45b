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
mod errand;
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
use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use async_trait::async_trait;
use fencehold_core::{HoldHash, Key, Namespace, Owner, Refusal, Token, ttl};
use tokio::sync::{mpsc, oneshot, watch};

use self::acquire::Taking;
use self::errand::Errand;
#[cfg(feature = "gates")]
pub use self::gate::{Gate, Request};
use self::look::{OnLease, Sight};
use self::names::Names;
pub use self::probe::{EtcdFinding, EtcdVerdict};
use self::unheard::{Telling, Told};
pub use self::version::EtcdMember;
use fencehold_contract::clock::Clock;
use fencehold_contract::hold_changes::HoldChanges;
use fencehold_contract::operation::{check_acquire, check_batch, check_limit, check_prefix};
use fencehold_contract::{
    AcquireRequest, Acquired, Advanced, Call, Capabilities, EtcdUrl, EventPage, EventsRequest, HoldListener,
    HoldRef, LeasePage, LeaseStore, LeaseView, LimitsRequest, LimitsView, ListRequest, Renewed,
    RevokeRequest, RevokedLease, StoreError, StoreStatus, Subscription, Which,
};

use self::wire::Wire;

const STORE: &str = "etcd:";
/// etcd's own least, at its default election timeout of a second. Above it, etcd counts whole seconds: a hold whose holder
/// died ends at its ttl rounded up.
const TTL_MS_MIN: u64 = 2_000;
/// How long closing waits for those who are leaving their lines.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);
/// How many holds a handle remembers, so that a renewal needs no look beforehand. What is forgotten is looked up.
const KNOWN_MAX: usize = 100_000;

/// A store in an etcd cluster.
pub struct EtcdStore {
    orders: mpsc::UnboundedSender<Order>,
    url: EtcdUrl,
    sent: Arc<AtomicU64>,
    hold_changes: Arc<HoldChanges>,
    closing: watch::Sender<bool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl EtcdStore {
    /// A handle on the store that a URL names. Members are reached for when the first question comes.
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
        let unavailable = |error: std::io::Error| StoreError::Unavailable {
            why: format!("the thread of {url} could not be started: {error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(unavailable)?;
        let sent = Arc::new(AtomicU64::new(0));
        let wire = {
            let _within = runtime.enter();
            Wire::new(
                url,
                Arc::clone(&sent),
                #[cfg(feature = "gates")]
                gate,
            )?
        };
        let (names, place) = (Names::new(&url.prefix), url.to_string());
        let hold_changes: Arc<HoldChanges> = Arc::default();
        let told_of = Arc::clone(&hold_changes);
        let (orders, inbox) = mpsc::unbounded_channel();
        let (closing, told) = watch::channel(false);
        let thread = std::thread::Builder::new()
            .name("fencehold-etcd".to_owned())
            .spawn(move || {
                let core = Core {
                    wire,
                    names,
                    clock,
                    place,
                    closing: told,
                    known: RefCell::default(),
                    hold_changes: told_of,
                    followed: RefCell::default(),
                };
                tokio::task::LocalSet::new().block_on(&runtime, serve(Rc::new(core), inbox));
            })
            .map_err(unavailable)?;
        let thread = Mutex::new(Some(thread));
        Ok(EtcdStore { orders, url: url.clone(), sent, hold_changes, closing, thread })
    }

    /// Has the thread do something that is answered by one value.
    async fn ask<T: Send + 'static>(
        &self,
        call: &Call,
        work: impl AsyncFnOnce(&Core, &mut Errand) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, told) = oneshot::channel();
        let patience_ms = call.patience_ms;
        let _ = self.orders.send(Box::new(move |core| {
            Box::pin(async move {
                let mut errand = Errand::new(&core.clock, &core.place, patience_ms, 0);
                let _ = reply.send(work(&core, &mut errand).await);
            })
        }));
        told.await.unwrap_or_else(|_| Err(closed()))
    }

    fn stop(&self) {
        self.closing.send_replace(true);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStore").field("url", &self.url).finish_non_exhaustive()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.stop();
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
            fair: true,
            waits: true,
            preempts: false,
            jobs: false,
            durable: true,
            ttl_ms_min: TTL_MS_MIN,
        }
    }

    async fn acquire(&self, call: &Call, request: AcquireRequest) -> Result<Acquired, StoreError> {
        ttl::check(request.ttl_ms, TTL_MS_MIN)?;
        check_acquire(&request)?;
        let (reply, told) = oneshot::channel();
        let (namespace, patience_ms) = (call.namespace.clone(), call.patience_ms);
        // A closed handle drops the question, and with it the reply.
        let _ = self.orders.send(Box::new(move |core| {
            Box::pin(async move { core.acquire(namespace, patience_ms, request, reply).await })
        }));
        let told = Telling::new(self.orders.clone(), told).await;
        told.unwrap_or_else(|| Err(closed()))
    }

    async fn renew(&self, call: &Call, holds: Vec<HoldRef>) -> Result<Renewed, StoreError> {
        check_batch("renewals", &holds)?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.renew(errand, &space, &holds).await)
            .await
    }

    async fn release(
        &self,
        call: &Call,
        holds: Vec<HoldRef>,
    ) -> Result<Vec<Result<Token, Refusal>>, StoreError> {
        check_batch("releases", &holds)?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.release(errand, &space, &holds).await)
            .await
    }

    async fn revoke(&self, call: &Call, request: RevokeRequest) -> Result<Vec<RevokedLease>, StoreError> {
        if let Which::Prefix(prefix) = &request.which {
            check_prefix(Some(prefix))?;
        }
        let space = call.namespace.clone();
        let ended = self
            .ask(call, async move |core, errand| core.revoke(errand, &space, &request).await)
            .await?;
        self.hold_changes.tell(ended.iter().map(|lease| (&call.namespace, &lease.key)));
        Ok(ended)
    }

    fn on_hold_change(&self, listener: HoldListener) -> Option<Subscription> {
        Some(self.hold_changes.subscribe(listener))
    }

    async fn get(&self, call: &Call, key: Key) -> Result<Option<LeaseView>, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.get(errand, &space, &key).await)
            .await
    }

    async fn list(&self, call: &Call, request: ListRequest) -> Result<LeasePage, StoreError> {
        check_limit(request.limit)?;
        check_prefix(request.prefix.as_ref())?;
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.list(errand, &space, &request).await)
            .await
    }

    async fn events(&self, _: &Call, _: EventsRequest) -> Result<EventPage, StoreError> {
        Err(StoreError::Unsupported { store: STORE.to_owned(), what: "tell events".to_owned() })
    }

    async fn advance(&self, call: &Call, by: Owner, lift: u64) -> Result<Advanced, StoreError> {
        self.ask(call, async move |core, errand| core.advance(errand, &by, lift).await)
            .await
    }

    async fn open_now(&self, call: &Call, _: Owner) -> Result<(), StoreError> {
        self.ask(call, async move |core, errand| core.open_now(errand).await).await
    }

    async fn limits(&self, call: &Call, request: LimitsRequest) -> Result<LimitsView, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.limits(errand, &space, &request).await)
            .await
    }

    async fn status(&self, call: &Call) -> Result<StoreStatus, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.status(errand, &space).await)
            .await
    }

    async fn closed_for_ms(&self, call: &Call) -> Result<u64, StoreError> {
        let space = call.namespace.clone();
        self.ask(call, async move |core, errand| core.closed_for_ms(errand, &space).await)
            .await
    }

    async fn answers(&self, call: &Call) -> Result<(), StoreError> {
        self.status(call).await.map(drop)
    }

    async fn close(&self) {
        self.stop();
    }
}

/// Something for the thread behind a handle to do.
type Order = Box<dyn FnOnce(Rc<Core>) -> Pin<Box<dyn Future<Output = ()>>> + Send>;

fn closed() -> StoreError {
    StoreError::Unavailable { why: "this store was closed".to_owned() }
}

/// What the thread behind a handle works with.
struct Core {
    wire: Wire,
    names: Names,
    clock: Arc<dyn Clock>,
    /// The URL, without its password.
    place: String,
    closing: watch::Receiver<bool>,
    known: RefCell<HashMap<(Namespace, Key), Known>>,
    hold_changes: Arc<HoldChanges>,
    /// The namespaces in which it hears of what others do to holds.
    followed: RefCell<BTreeSet<Namespace>>,
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
        request: AcquireRequest,
        mut reply: oneshot::Sender<Told>,
    ) {
        let errand = Errand::new(&self.clock, &self.place, patience_ms, request.wait_ms);
        let space = namespace.clone();
        let told = Taking::new(self, errand, namespace, request).run(&mut reply).await;
        if told.answer.is_ok() {
            self.hear_of_holds(&space);
        }
        if let Err(unheard) = reply.send(told) {
            self.nobody_heard(unheard).await;
        }
    }
}

/// Carries out orders, each in a task of its own, until the handle is closed.
async fn serve(core: Rc<Core>, mut inbox: mpsc::UnboundedReceiver<Order>) {
    let (under_way, mut all_done) = mpsc::channel::<()>(1);
    let mut closing = core.closing.clone();
    loop {
        let order = tokio::select! {
            order = inbox.recv() => order,
            _ = closing.wait_for(|closing| *closing) => None,
        };
        let Some(order) = order else { break };
        let (core, under_way) = (Rc::clone(&core), under_way.clone());
        tokio::task::spawn_local(async move {
            order(core).await;
            drop(under_way);
        });
    }
    drop((inbox, under_way));
    let _ = tokio::time::timeout(CLOSE_WITHIN, all_done.recv()).await;
}
