//! A store with a gate in front of it, and a clock that tells what is waited for: the means to arrange a race instead
//! of hoping for it.

mod jobs;
mod time;

use std::collections::{HashMap, VecDeque};
use std::fmt::Debug;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use fencehold::clock::ManualClock;
use fencehold::store::{
    AcquireLeaseRequest, CallContext, Capabilities, HoldRef, LeaseStore, LeaseView, MemoryStore,
    RenewLeaseBatchResponse, RevokeLeasesRequest, RevokeTarget, StoreError,
};
use fencehold::{Fencehold, FenceholdBuilder, Key, Lease, LeaseSnapshot, LeaseWatch, Owner, Reason};
use fencehold_contract::operation::{StoreBackend, StoreRequest, StoreResponse};
use tokio::sync::{mpsc, oneshot, watch};

pub(crate) use self::jobs::with;
pub(crate) use self::time::Time;

/// Past the latest moment at which a lease of 10 s is renewed: a third, and 15 %.
pub(crate) const RENEWED_BY_MS: u64 = 3_834;
/// A first failure is tried again after no more than this.
pub(crate) const FIRST_BACKOFF_MS: u64 = 50;

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no thread panics with this in hand")
}

/// What goes through the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GatedCall {
    Acquire,
    Renew,
    Release,
    Enqueue,
    Change,
    Claim,
    RenewClaims,
    Report,
    Ledger,
    Begin,
}

/// What becomes of a call.
#[derive(Debug)]
pub(crate) enum CallFate {
    /// Nothing in particular.
    Pass,
    /// It is carried out, and its answer never arrives.
    LoseAnswer,
    /// It is not carried out.
    Refuse(StoreError),
    /// It is not carried out, and no response ever comes.
    Hang,
    /// It arrives only when the test says so.
    DelayRequest(oneshot::Receiver<()>),
    /// It is carried out, and its answer arrives only when the test says so.
    DelayAnswer(oneshot::Receiver<()>),
    /// It arrives twice; the second answer is the one that comes back.
    Twice,
    /// The store's code panics.
    Panic,
    /// A renewal gets this answer instead.
    Renewed(RenewLeaseBatchResponse),
}

#[derive(Debug)]
pub(crate) struct GatedStore {
    inner: MemoryStore,
    next: Mutex<HashMap<GatedCall, VecDeque<CallFate>>>,
    always: Mutex<HashMap<GatedCall, StoreError>>,
    arrived: watch::Sender<HashMap<GatedCall, usize>>,
    acquires: Mutex<Vec<AcquireLeaseRequest>>,
    renewals: Mutex<Vec<Vec<HoldRef>>>,
    timeout: Mutex<Vec<(GatedCall, u64)>>,
    work: jobs::SeenCalls,
}

impl GatedStore {
    fn new(clock: &ManualClock) -> Arc<Self> {
        let inner = MemoryStore::open(Arc::new(clock.clone())).expect("a store");
        Arc::new(GatedStore {
            inner,
            next: Mutex::default(),
            always: Mutex::default(),
            arrived: watch::Sender::default(),
            acquires: Mutex::default(),
            renewals: Mutex::default(),
            timeout: Mutex::default(),
            work: jobs::SeenCalls::default(),
        })
    }

    /// The fate of the next call that has none yet.
    pub(crate) fn next(&self, verb: GatedCall, fate: CallFate) {
        locked(&self.next).entry(verb).or_default().push_back(fate);
    }

    /// The next request arrives only when this is dropped or told.
    pub(crate) fn delay_request(&self, verb: GatedCall) -> oneshot::Sender<()> {
        let (sender, receiver) = oneshot::channel();
        self.next(verb, CallFate::DelayRequest(receiver));
        sender
    }

    /// The next answer arrives only when this is dropped or told.
    pub(crate) fn delay_answer(&self, verb: GatedCall) -> oneshot::Sender<()> {
        let (sender, receiver) = oneshot::channel();
        self.next(verb, CallFate::DelayAnswer(receiver));
        sender
    }

    /// From now on all of these fail.
    pub(crate) fn close(&self, verb: GatedCall) {
        let why = "the gate is closed".to_owned();
        locked(&self.always).insert(verb, StoreError::Unavailable { message: why });
    }

    /// From now on these go through.
    pub(crate) fn open(&self, verb: GatedCall) {
        locked(&self.always).remove(&verb);
    }

    pub(crate) fn calls(&self, verb: GatedCall) -> usize {
        self.arrived.borrow().get(&verb).copied().unwrap_or(0)
    }

    /// Waits until so many calls have come to the gate in all.
    pub(crate) async fn arrived(&self, verb: GatedCall, calls: usize) {
        let mut arrived = self.arrived.subscribe();
        within(arrived.wait_for(|counts| counts.get(&verb).copied().unwrap_or(0) >= calls))
            .await
            .expect("the gate");
    }

    pub(crate) fn acquires(&self) -> Vec<AcquireLeaseRequest> {
        locked(&self.acquires).clone()
    }

    pub(crate) fn renewals(&self) -> Vec<Vec<HoldRef>> {
        locked(&self.renewals).clone()
    }

    pub(crate) fn timeout_ms(&self, verb: GatedCall) -> Vec<u64> {
        let timeouts = locked(&self.timeout);
        timeouts.iter().filter(|(of, _)| *of == verb).map(|(_, ms)| *ms).collect()
    }

    fn arranged_renewal(&self) -> Option<RenewLeaseBatchResponse> {
        let mut next = locked(&self.next);
        let fates = next.entry(GatedCall::Renew).or_default();
        match fates.pop_front()? {
            CallFate::Renewed(renewed) => Some(renewed),
            other => {
                fates.push_front(other);
                None
            }
        }
    }

    async fn pass<T, F>(
        &self,
        verb: GatedCall,
        call: &CallContext,
        inner: impl Fn() -> F,
    ) -> Result<T, StoreError>
    where
        F: Future<Output = Result<T, StoreError>>,
    {
        let fate = locked(&self.next).entry(verb).or_default().pop_front();
        let closed = locked(&self.always).get(&verb).cloned();
        locked(&self.timeout).push((verb, call.timeout_ms));
        self.arrived.send_modify(|counts| *counts.entry(verb).or_default() += 1);
        match (fate, closed) {
            (None, None) | (Some(CallFate::Pass), _) => inner().await,
            (None, Some(error)) | (Some(CallFate::Refuse(error)), _) => Err(error),
            (Some(CallFate::LoseAnswer), _) => {
                drop(inner().await);
                Err(StoreError::OutcomeUnknown { message: "the answer was lost".to_owned() })
            }
            (Some(CallFate::Hang), _) => std::future::pending().await,
            (Some(CallFate::DelayRequest(go)), _) => {
                let _ = go.await;
                inner().await
            }
            (Some(CallFate::DelayAnswer(go)), _) => {
                let answer = inner().await;
                let _ = go.await;
                answer
            }
            (Some(CallFate::Twice), _) => {
                drop(inner().await);
                inner().await
            }
            (Some(CallFate::Renewed(_) | CallFate::Panic), _) => panic!("a panic that the test has arranged"),
        }
    }
}

#[async_trait]
impl StoreBackend for GatedStore {
    async fn execute(&self, call: &CallContext, mut ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let verb = match &mut ask {
            StoreRequest::Acquire(request) => {
                locked(&self.acquires).push(request.clone());
                Some(GatedCall::Acquire)
            }
            StoreRequest::Renew(holds) => {
                locked(&self.renewals).push(holds.clone());
                if let Some(renewed) = self.arranged_renewal() {
                    return Ok(StoreResponse::Renewed(renewed));
                }
                Some(GatedCall::Renew)
            }
            StoreRequest::Release(_) => Some(GatedCall::Release),
            StoreRequest::Job(ask) => self.work.see(ask),
            _ => None,
        };
        match verb {
            Some(verb) => self.pass(verb, call, || self.inner.execute(call, ask.clone())).await,
            None => self.inner.execute(call, ask).await,
        }
    }

    fn capabilities(&self) -> Capabilities {
        StoreBackend::capabilities(&self.inner)
    }

    async fn close(&self) {
        StoreBackend::close(&self.inner).await;
    }
}

/// A handle on a gated store, on a clock that only the test moves.
pub(crate) struct GatedFixture {
    pub(crate) fh: Fencehold,
    pub(crate) gate: Arc<GatedStore>,
    pub(crate) time: Time,
}

impl std::ops::Deref for GatedFixture {
    type Target = Time;

    fn deref(&self) -> &Time {
        &self.time
    }
}

impl GatedFixture {
    pub(crate) async fn new() -> Self {
        GatedFixture::with(|connect| connect).await
    }

    pub(crate) async fn with(options: impl FnOnce(FenceholdBuilder) -> FenceholdBuilder) -> Self {
        let (time, clock) = Time::by_hand();
        let gate = GatedStore::new(&time.clock);
        let store: Arc<dyn LeaseStore> = Arc::clone(&gate) as _;
        let connect = Fencehold::builder().store(store).clock(clock).owner("me");
        let fh = options(connect).connect().await.expect("a handle");
        GatedFixture { fh, gate, time }
    }

    pub(crate) async fn acquire(&self, key: &str, ttl_ms: u64) -> Lease {
        done(self.fh.lease(key).ttl(Duration::from_millis(ttl_ms)).try_acquire()).await
    }

    /// How a key stands at the store.
    pub(crate) async fn view(&self, key: &str) -> LeaseView {
        self.until_known(key).await;
        let view = self.gate.get(&self.fh.call(), Key::new(key).expect("a key")).await;
        view.expect("an answer").expect("a key that is known")
    }

    /// Waits until the store's view of a key is as wanted. The store answers in order, so this needs no time.
    pub(crate) async fn until(&self, key: &str, wanted: impl Fn(&LeaseView) -> bool) -> LeaseView {
        within(async {
            loop {
                let view = self.view(key).await;
                if wanted(&view) {
                    return view;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Waits until the store has granted a key.
    pub(crate) async fn until_known(&self, key: &str) {
        within(async {
            let key = Key::new(key).expect("a key");
            while self.gate.get(&self.fh.call(), key.clone()).await.expect("an answer").is_none() {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    pub(crate) async fn revoke(&self, key: &str) {
        let request = RevokeLeasesRequest {
            target: RevokeTarget::Key { key: Key::new(key).expect("a key"), only_token: None },
            by: Owner::new("alice").expect("an owner"),
            reason: Reason::new("it ran away").expect("a reason"),
        };
        self.gate.revoke(&self.fh.call(), request).await.expect("revoked");
    }
}

/// Waits until a watch shows what is wanted.
pub(crate) async fn until(watch: &mut LeaseWatch, wanted: impl Fn(&LeaseSnapshot) -> bool) -> LeaseSnapshot {
    within(async {
        loop {
            let snapshot = watch.changed().await.expect("lost");
            if wanted(&snapshot) {
                return snapshot;
            }
        }
    })
    .await
}

/// A test that would wait for ever fails instead.
pub(crate) async fn within<F: Future>(future: F) -> F::Output {
    tokio::time::timeout(secs(30), future).await.expect("this never comes")
}

/// Waits until something has succeeded.
#[track_caller]
pub(crate) fn done<T, E: Debug>(future: impl Future<Output = Result<T, E>>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move { within(future).await.unwrap_or_else(|error| panic!("{caller}: {error:?}")) }
}

/// Waits for the next that comes through a channel.
#[track_caller]
pub(crate) fn next<T>(channel: &mut mpsc::UnboundedReceiver<T>) -> impl Future<Output = T> {
    let caller = Location::caller();
    async move {
        within(channel.recv())
            .await
            .unwrap_or_else(|| panic!("{caller}: nothing more comes"))
    }
}

pub(crate) fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Looks at a future once.
pub(crate) fn is_ready<F: Future>(future: F) -> bool {
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    std::pin::pin!(future).poll(&mut context).is_ready()
}
