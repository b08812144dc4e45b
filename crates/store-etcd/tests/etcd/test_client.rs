//! Short ways to ask, for the tests that arrange things themselves.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, HoldRef, LeaseStore, LeaseView, StoreError};
use fencehold_core::lease::LeaseRenewal;
use fencehold_core::{HoldId, Refusal, Token};
use fencehold_store_etcd::{EtcdRequest, EtcdStore};
use fencehold_test_servers::calls::{OneByOne as _, key, lease_request};
use fencehold_test_servers::etcd::fresh_prefix;
use fencehold_test_store::{block_on, pause};

use crate::call;
use crate::clock::MovedClock;
use crate::request_gate::TestGate;

pub(crate) const TTL_MS: u64 = 30_000;

/// A person with a handle of their own on a store, and a gate in front of it.
pub(crate) struct TestClient {
    pub(crate) name: &'static str,
    pub(crate) store: Arc<EtcdStore>,
    pub(crate) gate: Arc<TestGate>,
    pub(crate) clock: Arc<MovedClock>,
}

/// People who share a fresh store.
pub(crate) fn people<const N: usize>(names: [&'static str; N]) -> [TestClient; N] {
    let prefix = fresh_prefix();
    names.map(|name| {
        let (gate, clock) = (Arc::new(TestGate::new()), Arc::new(MovedClock::default()));
        let url = crate::cluster().url(&prefix);
        let store = Arc::new(EtcdStore::open_through(&url, clock.clone(), gate.clone()).unwrap());
        TestClient { name, store, gate, clock }
    })
}

/// An acquisition on a thread of its own.
pub(crate) type StartedAcquire = JoinHandle<Result<AcquiredLease, StoreError>>;

/// What a person asked for and got.
#[derive(Clone)]
pub(crate) struct HeldLease {
    pub(crate) request: AcquireLeaseRequest,
    pub(crate) token: Token,
}

impl HeldLease {
    pub(crate) fn as_ref(&self) -> HoldRef {
        HoldRef { key: self.request.any_of[0].clone(), hold_id: self.request.hold_id, token: self.token }
    }
}

impl TestClient {
    pub(crate) fn ask(&self, name: &str) -> AcquireLeaseRequest {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let mut bits = [0x3c; 16];
        bits[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        AcquireLeaseRequest { hold_id: HoldId::from_random(bits), ..lease_request(name, 0, self.name) }
    }

    pub(crate) fn ask_to_wait(&self, name: &str) -> AcquireLeaseRequest {
        AcquireLeaseRequest { wait_ms: 60_000, ..self.ask(name) }
    }

    pub(crate) fn acquire(&self, request: AcquireLeaseRequest) -> Result<AcquiredLease, StoreError> {
        block_on(self.store.acquire(&call(), request))
    }

    pub(crate) fn take(&self, name: &str) -> HeldLease {
        self.take_with(self.ask(name))
    }

    pub(crate) fn take_with(&self, request: AcquireLeaseRequest) -> HeldLease {
        let token = self.acquire(request.clone()).unwrap().grant.token;
        HeldLease { request, token }
    }

    pub(crate) fn renew(&self, held: &HeldLease) -> Result<LeaseRenewal, Refusal> {
        self.store.renew_one(&held.as_ref())
    }

    pub(crate) fn release(&self, held: &HeldLease) -> Result<Token, Refusal> {
        let released = self.store.release_one(&held.as_ref())?;
        assert_eq!(released.key, held.as_ref().key);
        Ok(released.token)
    }

    pub(crate) fn run_out(&self, name: &str) {
        block_on(self.store.run_out(&call(), key(name))).unwrap();
    }

    pub(crate) fn view(&self, name: &str) -> LeaseView {
        block_on(self.store.get(&call(), key(name))).unwrap().unwrap()
    }

    pub(crate) fn holder(&self, name: &str) -> Option<String> {
        self.view(name).holder.map(|holder| holder.owner.to_string())
    }

    /// Asks on a thread of its own.
    pub(crate) fn start<T: Send + 'static>(
        &self,
        call: impl FnOnce(Arc<EtcdStore>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let store = Arc::clone(&self.store);
        thread::spawn(move || call(store))
    }

    pub(crate) fn start_acquire(&self, request: AcquireLeaseRequest) -> StartedAcquire {
        self.start(move |store| block_on(store.acquire(&call(), request)))
    }

    /// Has the next request of a kind stand at the gate, and returns when it does, and the act that sends it is under way.
    pub(crate) fn hold_up<T: Send + 'static>(
        &self,
        request: EtcdRequest,
        act: impl FnOnce(Arc<EtcdStore>) -> T + Send + 'static,
    ) -> JoinHandle<T> {
        self.gate.hold_next(request);
        let acting = self.start(act);
        self.gate.until_held();
        acting
    }

    /// The same of a renewal.
    pub(crate) fn hold_up_renewal(
        &self,
        request: EtcdRequest,
        held: &HeldLease,
    ) -> JoinHandle<Result<LeaseRenewal, Refusal>> {
        let own = held.as_ref();
        self.hold_up(request, move |store| store.renew_one(&own))
    }

    /// The same of an acquisition, at the write that decides.
    pub(crate) fn hold_up_acquire(&self, request: AcquireLeaseRequest) -> StartedAcquire {
        self.hold_up(EtcdRequest::Write, move |store| block_on(store.acquire(&call(), request)))
    }

    /// Stands in line on a thread of its own; returns when it is seen there.
    pub(crate) fn stand_in_line(&self, request: AcquireLeaseRequest) -> StartedAcquire {
        let name = request.any_of[0].to_string();
        let before = self.view(&name).waiter_count;
        let waiting = self.start_acquire(request);
        while self.view(&name).waiter_count == before {
            pause();
        }
        waiting
    }
}
