//! Moments, as a store tells them.

use serde::{Deserialize, Serialize};

/// One moment on the two clocks that a store has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Timestamp {
    /// Store time in milliseconds: the clock that decides. It never runs backwards; its zero means nothing.
    pub store_ms: u64,
    /// Wall time in milliseconds since 1970: for people, and for what waits for a moment of the calendar (schedules, `run_at`).
    /// It may be set forward and back; nothing else is decided by it.
    pub wall_ms: u64,
}

impl Timestamp {
    /// The moment `ms` earlier, on both clocks.
    pub(crate) fn earlier(self, ms: u64) -> Self {
        Timestamp { store_ms: self.store_ms.saturating_sub(ms), wall_ms: self.wall_ms.saturating_sub(ms) }
    }
}
