//! One call on its way: how long its caller bears with the cluster, and whether anything may have been done.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::clock::Clock;
use fencehold_net::Patience;

use super::wire::Fault;

/// The first rest between two tries, so that a cluster without a leader is not flooded.
const REST: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
pub(super) struct Errand {
    patience: Patience,
    place: String,
    /// Something was sent whose outcome is not known.
    pub(super) uncertain: bool,
}

impl Errand {
    /// Sets out now, and is given up when patience ends, on top of any waiting in line.
    pub(super) fn new(clock: &Arc<dyn Clock>, place: &str, patience_ms: u64, wait_ms: u64) -> Self {
        let patience = Patience::new(clock, patience_ms, wait_ms, REST);
        Errand { patience, place: place.to_owned(), uncertain: false }
    }

    /// Another one beside it, for a part of the same call.
    pub(super) fn beside(&self) -> Self {
        self.clone()
    }

    pub(super) fn asked_at_ms(&self) -> u64 {
        self.patience.asked_at_ms()
    }

    pub(super) fn now_ms(&self) -> u64 {
        self.patience.now_ms()
    }

    /// How long it has been under way.
    pub(super) fn so_far_ms(&self) -> u64 {
        self.patience.so_far_ms()
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
            Fault::Unreached(why) => why,
            Fault::LeaseGone => "an etcd lease ended while it was needed".to_owned(),
        };
        if self.is_over() {
            return Err(self.given_up(&why));
        }
        tracing::debug!(place = self.place, why, "etcd did not answer; asking again");
        self.patience.rest(Duration::ZERO).await;
        Ok(())
    }

    /// Whether patience has ended.
    pub(super) fn is_over(&self) -> bool {
        self.patience.is_over()
    }

    /// What to say when patience has ended.
    pub(super) fn given_up(&self, why: &str) -> StoreError {
        let why = format!("{}: {why}", self.place);
        if self.uncertain { StoreError::Unknown { why } } else { StoreError::Unavailable { why } }
    }
}
