//! One call on its way: how long its caller bears with the database, and whether anything may have been done.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::clock::Clock;
use fencehold_net::Patience;

use super::Repeat;
use super::fault::Fault;
use super::pool::Lane;

/// The first rest between two tries, so that a server that is starting is not flooded.
const REST: Duration = Duration::from_millis(20);
/// The least that a statement gets, however little patience is left: a request that was never sent tells nobody anything.
const STATEMENT_MIN: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Errand {
    patience: Patience,
    place: String,
    /// Something was sent whose outcome is not known.
    pub(super) uncertain: bool,
    /// Whose connections it uses.
    pub(super) lane: Lane,
}

impl Errand {
    /// Sets out now, and is given up when patience ends, on top of any waiting in line.
    pub(super) fn new(clock: &Arc<dyn Clock>, place: &str, patience_ms: u64, wait_ms: u64) -> Self {
        let patience = Patience::new(clock, patience_ms, wait_ms, REST);
        Errand { patience, place: place.to_owned(), uncertain: false, lane: Lane::default() }
    }

    /// How long it has been under way, by this machine's boot clock.
    pub(super) fn so_far_ms(&self) -> u64 {
        self.patience.so_far_ms()
    }

    /// Whether patience has ended.
    pub(super) fn is_over(&self) -> bool {
        self.patience.is_over()
    }

    /// How long a statement may take.
    pub(super) fn left(&self) -> Duration {
        self.patience.left().max(STATEMENT_MIN)
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
        self.patience.rest(Duration::ZERO).await;
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
