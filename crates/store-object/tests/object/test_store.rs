//! An arena for the conformance suite: two handles on one place, and one clock that is moved by hand.

use std::sync::{Arc, Mutex};

use fencehold_contract::clock::{Clock as _, ManualClock};
use fencehold_contract::{CallContext, LeaseStore, ListLeasesRequest, ObjectUrl};
use fencehold_core::{Key, Namespace};
use fencehold_store_object::{NonceSeed, ObjectStore, over_after_ms};
use fencehold_test_store::{TestCapability, TestStore, block_on};

use crate::servers::ObjectServer;

pub struct ObjectTestStore {
    clock: ManualClock,
    place: ObjectUrl,
    handles: Mutex<Option<[Arc<ObjectStore>; 2]>>,
}

impl ObjectTestStore {
    pub fn on(server: ObjectServer) -> Self {
        ObjectTestStore { clock: ManualClock::new(), place: server.place(), handles: Mutex::new(None) }
    }

    fn handles(&self) -> [Arc<ObjectStore>; 2] {
        let open = || {
            let clock = Arc::new(self.clock.clone());
            Arc::new(ObjectStore::open(&self.place, clock, NonceSeed::draw().unwrap()).unwrap())
        };
        self.handles.lock().unwrap().get_or_insert_with(|| [open(), open()]).clone()
    }
}

impl TestStore for ObjectTestStore {
    fn store(&self) -> Arc<dyn LeaseStore> {
        self.handles()[0].clone()
    }

    fn other(&self) -> Arc<dyn LeaseStore> {
        self.handles()[1].clone()
    }

    fn test_capabilities(&self) -> Vec<TestCapability> {
        vec![
            TestCapability::MovesTime,
            TestCapability::MovesWall,
            TestCapability::Restarts,
            TestCapability::Advances,
            TestCapability::Reopens,
        ]
    }

    fn rounds(&self) -> usize {
        5
    }

    fn pass(&self, ms: u64) {
        self.clock.advance_ms(ms);
    }

    /// A lease is over for a contender when it has seen it for long enough: so both handles look, and then time passes.
    fn run_out(&self, call: &CallContext, key: &Key) {
        for handle in self.handles() {
            block_on(handle.get(call, key.clone())).unwrap();
        }
        let view = block_on(self.handles()[0].get(call, key.clone())).unwrap();
        if let Some(holder) = view.and_then(|view| view.holder) {
            self.clock.advance_ms(over_after_ms(holder.ttl_ms));
        }
    }

    fn over_after_ms(&self, ttl_ms: u64) -> u64 {
        over_after_ms(ttl_ms)
    }

    fn limits_count_after_ms(&self) -> u64 {
        60_000
    }

    fn open_again(&self, closed_for_ms: u64) {
        for handle in self.handles() {
            let call = CallContext::new(Namespace::default());
            let all = ListLeasesRequest { include_free: true, limit: 1_000, ..ListLeasesRequest::default() };
            block_on(handle.list(&call, all)).unwrap();
            // A key that was never held: asking for it is looking at what an advance has left for such keys.
            let _ = block_on(handle.acquire(&call, crate::ask("never-held", "nobody")));
        }
        self.clock.advance_ms(closed_for_ms);
    }

    fn shift_wall(&self, by_ms: i64) {
        self.clock.set_wall(self.clock.now().wall_ms.saturating_add_signed(by_ms));
    }

    fn restart(&self) {
        let handles = self.handles.lock().unwrap().take();
        for handle in handles.into_iter().flatten() {
            block_on(handle.close());
        }
    }
}
