//! A stage for schedules: holders with a handle each, a gate in front of every one's transport, and one clock.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use fencehold_contract::clock::{Clock, ManualClock};
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseStore as _, LeaseView, ObjectUrl,
    RevokedLease, StoreError,
};
use fencehold_core::lease::{LeaseOutcome, LeaseRenewal};
use fencehold_core::{Namespace, Refusal, Token};
use fencehold_store_object::{
    Cloud, NonceSeed, ObjectRequest, ObjectRequestHook, ObjectStore, ResponseFate, over_after_ms,
};
use fencehold_test_servers::calls::{held_by, key, revoke_key};
use fencehold_test_store::block_on;
use tokio::sync::{mpsc, oneshot};

use crate::TTL_MS;
use crate::servers::ObjectServer;

/// One place, one clock, and what every holder on it uses.
pub struct Fixture {
    server: ObjectServer,
    pub place: ObjectUrl,
    pub clock: ManualClock,
}

impl Fixture {
    pub fn on(server: ObjectServer) -> Self {
        Fixture { server, place: server.place(), clock: ManualClock::new() }
    }

    /// A holder with a handle and a gate of its own.
    pub fn holder(&self, name: &'static str) -> TestHolder {
        let gate = Arc::new(TestGate::default());
        let cloud = Cloud::behind(&self.place, gate.clone()).unwrap();
        let store = open_on(cloud, &self.place, Arc::new(self.clock.clone()));
        TestHolder { name, store: Arc::new(store), gate, call: CallContext::new(Namespace::default()) }
    }

    /// Has one that has been watching take the key `k`, when its lease has run out.
    pub fn taken_over(&self, by: &TestHolder) -> HoldRef {
        self.run_out();
        by.take("k")
    }

    /// Lets enough time pass for one that has been watching.
    pub fn run_out(&self) {
        self.clock.advance_ms(over_after_ms(TTL_MS));
    }
}

impl Drop for Fixture {
    #[expect(clippy::print_stderr, reason = "a test that fails says on which cloud")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("on {:?}", self.server);
        }
    }
}

/// A store on this cloud, which is not probed.
pub fn open_on(cloud: Cloud, place: &ObjectUrl, clock: Arc<dyn Clock>) -> ObjectStore {
    ObjectStore::open_on(Arc::new(cloud), place, clock, NonceSeed::draw().unwrap()).unwrap()
}

/// One who takes leases.
pub struct TestHolder {
    pub name: &'static str,
    pub store: Arc<ObjectStore>,
    pub gate: Arc<TestGate>,
    pub call: CallContext,
}

impl TestHolder {
    pub fn ask(&self, key: &str) -> AcquireLeaseRequest {
        crate::ask(key, self.name)
    }

    pub fn acquire(&self, request: AcquireLeaseRequest) -> Result<AcquiredLease, StoreError> {
        block_on(self.store.acquire(&self.call, request))
    }

    pub fn take(&self, key: &str) -> HoldRef {
        self.take_with(self.ask(key))
    }

    pub fn take_with(&self, request: AcquireLeaseRequest) -> HoldRef {
        let hold = request.hold_id;
        let acquired = self.acquire(request).unwrap_or_else(|error| panic!("{}: {error}", self.name));
        HoldRef { key: acquired.key, hold_id: hold, token: acquired.grant.token }
    }

    /// Who holds it, in the words of the refusal.
    pub fn held_by(&self, key: &str) -> (String, Token) {
        held_by(self.acquire(self.ask(key)))
    }

    pub fn renew(&self, hold: &HoldRef) -> Result<LeaseRenewal, Refusal> {
        self.try_renew(hold).unwrap_or_else(|error| panic!("{}: {error}", self.name))
    }

    pub fn try_renew(&self, hold: &HoldRef) -> Result<Result<LeaseRenewal, Refusal>, StoreError> {
        block_on(self.store.renew(&self.call, vec![hold.clone()])).map(|renewed| renewed.results[0].clone())
    }

    pub fn release(&self, hold: &HoldRef) -> Result<Token, Refusal> {
        let answers = block_on(self.store.release(&self.call, vec![hold.clone()]));
        let released = answers.unwrap_or_else(|error| panic!("{}: {error}", self.name)).remove(0)?;
        assert_eq!(released.key, hold.key);
        Ok(released.token)
    }

    pub fn revoke(&self, key: &str) -> Result<Vec<RevokedLease>, StoreError> {
        block_on(self.store.revoke(&self.call, revoke_key(key)))
    }

    /// Looks, so that what is there has been seen from now on.
    pub fn look(&self, key: &str) -> Option<LeaseView> {
        block_on(self.store.get(&self.call, self::key(key))).unwrap()
    }

    /// What comes of an act whose next write stands at the gate while something else is done, and what comes of that.
    pub fn held_up<T: Send, U>(
        &self,
        act: impl FnOnce(&Self) -> T + Send,
        meanwhile: impl FnOnce() -> U,
    ) -> (T, U) {
        std::thread::scope(|scope| {
            // In here: if something panics, it is let go, and does not keep the scope from its end.
            let gate = self.gate.hold_write();
            let acting = scope.spawn(|| act(self));
            gate.arrived();
            let done = meanwhile();
            gate.go();
            (acting.join().unwrap(), done)
        })
    }
}

/// How a lease was lost, and under which token its key is now.
pub fn lost<T: std::fmt::Debug>(answer: Result<T, Refusal>) -> (Option<LeaseOutcome>, Token) {
    match answer {
        Err(Refusal::Lost { outcome, current_token, .. }) => (outcome, current_token),
        other => panic!("not lost: {other:?}"),
    }
}

/// What is to be done about the next requests of a kind.
enum PlannedFault {
    /// Held before it is sent; the test learns of it, and lets it go.
    Hold { arrived: mpsc::UnboundedSender<()>, go: oneshot::Receiver<()> },
    /// Its answer is lost in this way.
    Lose(ResponseFate),
    /// Nothing.
    Pass,
}

/// Counts every request, and does what it was asked about writes and deletes, in their order.
#[derive(Default)]
pub struct TestGate {
    writes: Mutex<VecDeque<PlannedFault>>,
    deletes: Mutex<VecDeque<PlannedFault>>,
    fates: Mutex<Vec<(Vec<u8>, ResponseFate)>>,
    /// How every read, and every request that belongs to a write, is answered without being sent.
    instead: Mutex<[Option<u16>; 2]>,
    seen: Mutex<Vec<ObjectRequest>>,
}

impl std::fmt::Debug for TestGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TestGate")
    }
}

/// A request that is held.
pub struct HeldRequest {
    arrived: Mutex<mpsc::UnboundedReceiver<()>>,
    go: Mutex<Option<oneshot::Sender<()>>>,
}

impl HeldRequest {
    /// Waits until the request stands at the gate.
    pub fn arrived(&self) {
        block_on(self.arrived.lock().unwrap().recv()).expect("a request that comes to the gate");
    }

    /// Lets it go.
    pub fn go(&self) {
        let _ = self.go.lock().unwrap().take().expect("once").send(());
    }
}

impl TestGate {
    fn hold(plans: &Mutex<VecDeque<PlannedFault>>) -> HeldRequest {
        let (arrived, came) = mpsc::unbounded_channel();
        let (sender, go) = oneshot::channel();
        plans.lock().unwrap().push_back(PlannedFault::Hold { arrived, go });
        HeldRequest { arrived: Mutex::new(came), go: Mutex::new(Some(sender)) }
    }

    /// Holds the next write until the test lets it go.
    pub fn hold_write(&self) -> HeldRequest {
        Self::hold(&self.writes)
    }

    /// Holds the next delete.
    pub fn hold_delete(&self) -> HeldRequest {
        Self::hold(&self.deletes)
    }

    /// Loses the answer to the next write but `skip`.
    pub fn lose_write(&self, skip: usize, fate: ResponseFate) {
        let mut writes = self.writes.lock().unwrap();
        writes.extend((0..skip).map(|_| PlannedFault::Pass));
        writes.push_back(PlannedFault::Lose(fate));
    }

    /// Answers every read, and every request that belongs to a write, with this status from now on.
    pub fn answer(&self, reads: Option<u16>, writes: Option<u16>) {
        *self.instead.lock().unwrap() = [reads, writes];
    }

    /// Every request so far, and from now on none.
    pub fn take(&self) -> Vec<ObjectRequest> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }

    /// Whether everything that was planned has happened.
    pub fn is_done(&self) -> bool {
        self.writes.lock().unwrap().is_empty() && self.deletes.lock().unwrap().is_empty()
    }
}

impl ObjectRequestHook for TestGate {
    fn before(&self, request: &ObjectRequest) -> Pin<Box<dyn Future<Output = ()> + Send + '_>> {
        self.seen.lock().unwrap().push(request.clone());
        let plan = match request.method.as_str() {
            "DELETE" => self.deletes.lock().unwrap().pop_front(),
            _ if request.writes => self.writes.lock().unwrap().pop_front(),
            _ => None,
        };
        let body = request.body.clone();
        Box::pin(async move {
            match plan {
                Some(PlannedFault::Hold { arrived, go }) => {
                    let _ = arrived.send(());
                    let _ = go.await;
                }
                Some(PlannedFault::Lose(fate)) => self.fates.lock().unwrap().push((body, fate)),
                Some(PlannedFault::Pass) | None => {}
            }
        })
    }

    fn instead(&self, request: &ObjectRequest) -> Option<u16> {
        let status = self.instead.lock().unwrap()[usize::from(request.method != "GET")];
        if status.is_some() {
            self.seen.lock().unwrap().push(request.clone());
        }
        status
    }

    fn after(
        &self,
        request: &ObjectRequest,
        _: u16,
    ) -> Pin<Box<dyn Future<Output = ResponseFate> + Send + '_>> {
        let mut fates = self.fates.lock().unwrap();
        // Every body has a nonce of its own.
        let at = fates.iter().position(|(body, _)| *body == request.body);
        let fate = at.map_or(ResponseFate::Pass, |at| fates.swap_remove(at).1);
        Box::pin(async move { fate })
    }
}
