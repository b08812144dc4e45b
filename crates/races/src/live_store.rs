//! A store that is in use, with a clock that cannot be moved here: what runs out is waited for, and seen.
//!
//! Deliberately absent: every power of an arena. Races that need one are not applicable, and say which.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{CallContext, LeaseStore, StoreError, StoreUrl};
use fencehold_core::Key;
use fencehold_stores::open;
use fencehold_test_store::{TestCapability, TestStore, block_on};

use crate::environment::Interrupt;

/// Long enough that nothing runs out between two steps of a script, and short enough to wait for.
const TTL_MS: u64 = 5_000;

pub(crate) struct LiveTestStore {
    handles: [Arc<dyn LeaseStore>; 2],
    ttl_ms: u64,
    interrupt: Interrupt,
}

impl LiveTestStore {
    /// Two handles, as two processes have.
    pub(crate) fn open(url: &StoreUrl, interrupt: Interrupt) -> Result<Self, StoreError> {
        let handle = || open(url, Arc::new(SystemClock));
        let handles = [handle()?, handle()?];
        let ttl_ms = TTL_MS.max(handles[0].capabilities().min_ttl_ms);
        Ok(LiveTestStore { handles, ttl_ms, interrupt })
    }

    /// For how long the key is held as far as this handle can tell; 0: it is free.
    fn remaining_ms(handle: &Arc<dyn LeaseStore>, call: &CallContext, key: &Key) -> u64 {
        let view = block_on(handle.get(call, key.clone()));
        view.map_or(1, |view| {
            view.and_then(|view| view.holder).map_or(0, |holder| holder.remaining_ms.max(1))
        })
    }
}

impl TestStore for LiveTestStore {
    fn store(&self) -> Arc<dyn LeaseStore> {
        Arc::clone(&self.handles[0])
    }

    fn other(&self) -> Arc<dyn LeaseStore> {
        Arc::clone(&self.handles[1])
    }

    fn test_capabilities(&self) -> Vec<TestCapability> {
        Vec::new()
    }

    fn ttl_ms(&self) -> u64 {
        self.ttl_ms
    }

    fn pass(&self, ms: u64) {
        unreachable!("a store whose clock cannot be moved was asked to move it by {ms} ms");
    }

    /// Where expiry is judged by observation, every handle has to see it for itself. A store that lets the lease live for
    /// four times as long as it may breaks the promise in the next step of the script.
    fn run_out(&self, call: &CallContext, key: &Key) {
        let mut waited_ms = 0;
        while waited_ms < 4 * self.ttl_ms {
            let left_ms = self.handles.each_ref().map(|handle| Self::remaining_ms(handle, call, key));
            let left_ms = left_ms[0].max(left_ms[1]);
            // Every look is a request, so there are few while much is left.
            let wait_ms = (left_ms / 2).max(self.ttl_ms / 100);
            if left_ms == 0 || self.interrupt.wait(Duration::from_millis(wait_ms)) {
                return;
            }
            waited_ms += wait_ms;
        }
    }
}

impl Drop for LiveTestStore {
    fn drop(&mut self) {
        for handle in &self.handles {
            block_on(handle.close());
        }
    }
}
