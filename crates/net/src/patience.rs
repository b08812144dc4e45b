//! How long a call is borne with on its way to a store elsewhere, and the rests between two tries. What a fault means, and
//! whether what may have been done may be sent again, each store says in its own errand.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::clock::Clock;

/// The longest rest between two tries.
const REST_MAX: Duration = Duration::from_millis(500);

/// The time that one call has.
#[derive(Clone, Debug)]
pub struct Patience {
    clock: Arc<dyn Clock>,
    asked_at_ms: u64,
    ends_ms: u64,
    rest: Duration,
}

impl Patience {
    /// It begins now, and lasts for so long on top of any waiting in line. The first rest is this long, so that somebody who
    /// is just coming back is not flooded.
    pub fn new(clock: &Arc<dyn Clock>, patience_ms: u64, wait_ms: u64, first_rest: Duration) -> Self {
        let asked_at_ms = clock.now().store_ms;
        Patience {
            clock: Arc::clone(clock),
            asked_at_ms,
            ends_ms: asked_at_ms.saturating_add(wait_ms).saturating_add(patience_ms),
            rest: first_rest,
        }
    }

    /// When the call was made, by this machine's boot clock.
    pub fn asked_at_ms(&self) -> u64 {
        self.asked_at_ms
    }

    /// The time by the clock of the call.
    pub fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    /// How long the call has been under way.
    pub fn so_far_ms(&self) -> u64 {
        self.now_ms().saturating_sub(self.asked_at_ms)
    }

    /// How much is left.
    pub fn left(&self) -> Duration {
        Duration::from_millis(self.ends_ms.saturating_sub(self.now_ms()))
    }

    /// Whether nothing is left.
    pub fn is_over(&self) -> bool {
        self.left().is_zero()
    }

    /// Rests before the next try, for as long as somebody asked for at least, and longer every time.
    #[expect(
        clippy::disallowed_methods,
        reason = "who does not answer is asked again after a while, in real time"
    )]
    pub async fn rest(&mut self, at_least: Duration) {
        tokio::time::sleep(self.rest.max(at_least).min(self.left())).await;
        self.rest = (self.rest * 2).min(REST_MAX);
    }
}
