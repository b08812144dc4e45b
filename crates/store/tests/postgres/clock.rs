//! The machine's own clock, with hands that a test can move.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencehold_core::Stamp;
use fencehold_store::clock::{Clock, SystemClock};

#[derive(Debug, Default)]
pub(crate) struct MovedClock {
    ahead_ms: AtomicU64,
}

impl MovedClock {
    /// Lets time pass.
    pub(crate) fn pass(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Stamp {
        let Stamp { store_ms, wall_ms } = SystemClock.now();
        Stamp { store_ms: store_ms + self.ahead_ms.load(Ordering::SeqCst), wall_ms }
    }

    fn real_time_until(&self, until_ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(until_ms.saturating_sub(self.now().store_ms)))
    }

    fn on_move(&self, _: Box<dyn Fn() + Send + Sync>) {}
}
