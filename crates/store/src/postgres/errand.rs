//! One call on its way: how long its caller bears with the database, and whether anything may have been done.

use std::sync::Arc;
use std::time::Duration;

use super::Repeat;
use super::fault::Fault;
use crate::clock::Clock;
use crate::error::StoreError;

/// Between two tries, so that a server that is starting is not flooded.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
/// The least that a statement gets, however little patience is left: a request that was never sent tells nobody anything.
const STATEMENT_MIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Errand {
    clock: Arc<dyn Clock>,
    place: String,
    asked_at_ms: u64,
    give_up_ms: u64,
    /// Something was sent whose outcome is not known.
    pub(super) uncertain: bool,
    pause: Duration,
}

impl Errand {
    /// Sets out now, and is given up when patience ends, on top of any waiting in line.
    pub(super) fn new(clock: &Arc<dyn Clock>, place: &str, patience_ms: u64, wait_ms: u64) -> Self {
        let asked_at_ms = clock.now().store_ms;
        Errand {
            clock: Arc::clone(clock),
            place: place.to_owned(),
            asked_at_ms,
            give_up_ms: asked_at_ms.saturating_add(wait_ms).saturating_add(patience_ms),
            uncertain: false,
            pause: PAUSE_MIN,
        }
    }

    /// How long it has been under way, by this machine's boot clock.
    pub(super) fn so_far_ms(&self) -> u64 {
        self.clock.now().store_ms.saturating_sub(self.asked_at_ms)
    }

    /// Whether patience has ended.
    pub(super) fn is_over(&self) -> bool {
        self.clock.now().store_ms >= self.give_up_ms
    }

    /// How long a statement may take.
    pub(super) fn left(&self) -> Duration {
        let left_ms = self.give_up_ms.saturating_sub(self.clock.now().store_ms);
        Duration::from_millis(left_ms).max(STATEMENT_MIN)
    }

    /// Bears with a fault, unless what may have been done must not be sent again.
    pub(super) async fn bear_with(&mut self, repeat: Repeat, fault: Fault) -> Result<(), StoreError> {
        match fault {
            Fault::Unclear(why) if repeat == Repeat::Never => {
                self.uncertain = true;
                Err(self.given_up(&why))
            }
            fault => self.bear(fault).await,
        }
    }

    /// Bears with a fault for a moment; or, when patience has ended or it would not help, says what stands in the way.
    pub(super) async fn bear(&mut self, fault: Fault) -> Result<(), StoreError> {
        let why = match fault {
            Fault::Refused(why) => {
                return Err(StoreError::Unusable { place: self.place.clone(), why });
            }
            Fault::Unclear(why) => {
                self.uncertain = true;
                why
            }
            Fault::Unreached(why) | Fault::Locked(why) => why,
        };
        if self.is_over() {
            return Err(self.given_up(&why));
        }
        tracing::debug!(place = self.place, why, "the database did not answer; asking again");
        pause(self.pause).await;
        self.pause = (self.pause * 2).min(PAUSE_MAX);
        Ok(())
    }

    /// What to say when patience has ended.
    pub(super) fn given_up(&self, why: &str) -> StoreError {
        let why = format!("{}: {why}", self.place);
        if self.uncertain { StoreError::Unknown { why } } else { StoreError::Unavailable { why } }
    }
}

/// Lets a moment pass, in real time.
#[expect(clippy::disallowed_methods, reason = "a server that does not answer is asked again after a while")]
pub(super) async fn pause(length: Duration) {
    tokio::time::sleep(length).await;
}
