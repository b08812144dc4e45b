//! The arena of the conformance suite: a fresh prefix, two handles on it, and etcd leases that can be revoked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use fencehold_contract::{CallContext, LeaseStore};
use fencehold_core::{Key, Namespace};
use fencehold_store_etcd::EtcdStore;
use fencehold_test_servers::etcd::fresh_prefix;
use fencehold_test_store::{TestCapability, TestStore, block_on};

use crate::clock::MovedClock;

pub(crate) struct EtcdTestStore {
    prefix: String,
    clock: Arc<MovedClock>,
    handles: Mutex<Option<[Arc<EtcdStore>; 2]>>,
    /// How much of the time for which the store is closed has been let pass.
    passed_ms: AtomicU64,
}

impl EtcdTestStore {
    pub(crate) fn new() -> Self {
        let (prefix, handles, passed_ms) = (fresh_prefix(), Mutex::new(None), AtomicU64::new(0));
        EtcdTestStore { prefix, clock: Arc::default(), handles, passed_ms }
    }

    fn handle(&self, nth: usize) -> Arc<EtcdStore> {
        let mut handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        let open = || {
            let url = crate::cluster().url(&self.prefix);
            Arc::new(EtcdStore::open(&url, self.clock.clone()).unwrap())
        };
        let handles = handles.get_or_insert_with(|| [open(), open()]);
        Arc::clone(&handles[nth])
    }
}

impl TestStore for EtcdTestStore {
    fn store(&self) -> Arc<dyn LeaseStore> {
        self.handle(0)
    }

    fn other(&self) -> Arc<dyn LeaseStore> {
        self.handle(1)
    }

    fn test_capabilities(&self) -> Vec<TestCapability> {
        vec![
            TestCapability::MovesWall,
            TestCapability::Restarts,
            TestCapability::NoticesLeaving,
            TestCapability::Advances,
            TestCapability::Reopens,
            TestCapability::TellsHolders,
        ]
    }

    fn pass(&self, ms: u64) {
        panic!("etcd's time cannot be moved by {ms} ms");
    }

    fn run_out(&self, call: &CallContext, key: &Key) {
        block_on(self.handle(0).run_out(call, key.clone())).unwrap();
    }

    fn open_again(&self, closed_for_ms: u64) {
        let passed_ms = self.passed_ms.fetch_add(closed_for_ms, Ordering::SeqCst) + closed_for_ms;
        let call = CallContext::new(Namespace::default());
        block_on(self.handle(0).reopen(&call, passed_ms)).unwrap();
    }

    fn shift_wall(&self, by_ms: i64) {
        self.clock.shift_wall(by_ms);
    }

    fn restart(&self) {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner).take();
        for handle in handles.into_iter().flatten() {
            block_on(handle.close());
        }
    }
}
