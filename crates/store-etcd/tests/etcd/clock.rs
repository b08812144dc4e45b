//! The machine's own clock, with hands that a test can move.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_core::Timestamp;

#[derive(Debug, Default)]
pub(crate) struct MovedClock {
    ahead_ms: AtomicU64,
    wall_ms: AtomicI64,
}

impl MovedClock {
    /// Lets time pass, on the boot clock.
    pub(crate) fn pass(&self, ms: u64) {
        self.ahead_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// Sets the wall clock forward or back.
    pub(crate) fn shift_wall(&self, by_ms: i64) {
        self.wall_ms.fetch_add(by_ms, Ordering::SeqCst);
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        let Timestamp { store_ms, wall_ms } = SystemClock.now();
        Timestamp {
            store_ms: store_ms + self.ahead_ms.load(Ordering::SeqCst),
            wall_ms: wall_ms.saturating_add_signed(self.wall_ms.load(Ordering::SeqCst)),
        }
    }

    fn real_time_until(&self, until_ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(until_ms.saturating_sub(self.now().store_ms)))
    }

    fn on_move(&self, _: Box<dyn Fn() + Send + Sync>) {}
}
