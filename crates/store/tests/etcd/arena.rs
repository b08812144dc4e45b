//! The arena of the conformance suite: a fresh prefix, two handles on it, and etcd leases that can be revoked.

use std::sync::{Arc, Mutex, PoisonError};

use fencehold_core::Key;
use fencehold_store::conformance::{Arena, Power, block_on};
use fencehold_store::etcd::EtcdStore;
use fencehold_store::{Call, LeaseStore};

use crate::clock::MovedClock;
use crate::cluster;

pub(crate) struct EtcdArena {
    prefix: String,
    clock: Arc<MovedClock>,
    handles: Mutex<Option<[Arc<EtcdStore>; 2]>>,
}

impl EtcdArena {
    pub(crate) fn new() -> Self {
        EtcdArena { prefix: cluster::fresh_prefix(), clock: Arc::default(), handles: Mutex::new(None) }
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

impl Arena for EtcdArena {
    fn store(&self) -> Arc<dyn LeaseStore> {
        self.handle(0)
    }

    fn other(&self) -> Arc<dyn LeaseStore> {
        self.handle(1)
    }

    fn powers(&self) -> Vec<Power> {
        vec![Power::MovesWall, Power::Restarts, Power::NoticesLeaving, Power::Advances, Power::TellsHolders]
    }

    fn pass(&self, ms: u64) {
        panic!("etcd's time cannot be moved by {ms} ms");
    }

    fn run_out(&self, call: &Call, key: &Key) {
        block_on(self.handle(0).run_out(call, key.clone())).unwrap();
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
