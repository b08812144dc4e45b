//! The machine's own clock, with hands that a test can move.

use std::sync::{PoisonError, RwLock};
use std::time::Duration;

use fencehold_contract::clock::{Clock, SystemClock};
use fencehold_core::Timestamp;

#[derive(Debug, Default)]
pub(crate) struct MovedClock {
    ahead_ms: RwLock<u64>,
    /// It does not go by itself.
    stands_at: Option<Timestamp>,
}

impl MovedClock {
    /// For those to whom it matters to the millisecond: however long the machine takes, no time passes but what is let pass.
    pub(crate) fn standing_still() -> Self {
        MovedClock { ahead_ms: RwLock::default(), stands_at: Some(SystemClock.now()) }
    }

    /// Lets time pass, here and wherever `also` does: no one sees the one without the other.
    pub(crate) fn pass(&self, ms: u64, also: impl FnOnce()) {
        let mut ahead_ms = self.ahead_ms.write().unwrap_or_else(PoisonError::into_inner);
        also();
        *ahead_ms += ms;
    }
}

impl Clock for MovedClock {
    fn now(&self) -> Timestamp {
        let ahead_ms = *self.ahead_ms.read().unwrap_or_else(PoisonError::into_inner);
        let Timestamp { store_ms, wall_ms } = self.stands_at.unwrap_or_else(|| SystemClock.now());
        Timestamp { store_ms: store_ms + ahead_ms, wall_ms }
    }

    fn real_time_until(&self, until_ms: u64) -> Option<Duration> {
        Some(Duration::from_millis(until_ms.saturating_sub(self.now().store_ms)))
    }

    fn on_move(&self, _: Box<dyn Fn() + Send + Sync>) {}
}
