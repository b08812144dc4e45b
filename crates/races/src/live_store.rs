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

/// Long enough that nothing runs out between two steps of a script, and short enough to wait for.
const TTL_MS: u64 = 5_000;
/// How often a lease that runs out is looked for, and for how long: four times what it may last. A store that lets it
/// live longer breaks the promise in the next step of the script.
const LOOK_EVERY: Duration = Duration::from_millis(25);
const LOOKS_MAX: u64 = 4 * TTL_MS / 25;

pub(crate) struct LiveTestStore {
    handles: [Arc<dyn LeaseStore>; 2],
}

impl LiveTestStore {
    /// Two handles, as two processes have.
    pub(crate) fn open(url: &StoreUrl) -> Result<Self, StoreError> {
        let handle = || open(url, Arc::new(SystemClock));
        Ok(LiveTestStore { handles: [handle()?, handle()?] })
    }

    /// Whether the key is free as far as this handle can tell.
    fn is_free(handle: &Arc<dyn LeaseStore>, call: &CallContext, key: &Key) -> bool {
        let view = block_on(handle.get(call, key.clone()));
        view.is_ok_and(|view| view.is_none_or(|view| view.holder.is_none()))
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
        TTL_MS
    }

    fn pass(&self, ms: u64) {
        unreachable!("a store whose clock cannot be moved was asked to move it by {ms} ms");
    }

    /// Where expiry is judged by observation, every handle has to see it for itself.
    #[expect(
        clippy::disallowed_methods,
        reason = "the store's time passes by itself, so it has to be waited for; the order is made by what is seen"
    )]
    fn run_out(&self, call: &CallContext, key: &Key) {
        for _ in 0..LOOKS_MAX {
            let free = self.handles.each_ref().map(|handle| Self::is_free(handle, call, key));
            if free == [true, true] {
                return;
            }
            std::thread::sleep(LOOK_EVERY);
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
