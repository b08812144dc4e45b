//! The gate: every limit that a request passes on its way to the store.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_core::Namespace;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::{
    BodyMemory, FairQueue, FairQueuePermit, NoWaitSlot, RateLimiter, ServerLimits, WaitSlot, WaitSlots,
};
use crate::access::CallerIdentity;

/// How long a request may wait for room before it is shed.
const ORDINARY_PATIENCE: Duration = Duration::from_secs(2);
/// A renewal waits longer: shedding it may cost its sender the lease.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(10);

/// Where the limits are kept.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) limits: ServerLimits,
    connections: Arc<Semaphore>,
    pub(crate) bodies: BodyMemory,
    pub(crate) ordinary: FairQueue,
    pub(crate) renewals: FairQueue,
    pub(crate) seats: WaitSlots<CallerIdentity>,
    /// For those who hear of what others do to their holds.
    listening: WaitSlots<CallerIdentity>,
    pub(crate) requests: RateLimiter<CallerIdentity>,
    pub(crate) renewal_requests: RateLimiter<CallerIdentity>,
}

/// How a request goes to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdmissionClass {
    /// With everything else.
    Ordinary,
    /// In the lane of its own.
    Renewal,
    /// It may wait for long, and takes a seat for that instead of room in a lane.
    Waiting,
}

/// The right to go on to the store, until it is dropped.
#[derive(Debug)]
#[expect(dead_code, reason = "held for what their end does")]
pub(crate) enum AdmissionPermit {
    Place(FairQueuePermit),
    Seat(WaitSlot<CallerIdentity>),
}

impl Admission {
    pub(crate) fn new(limits: ServerLimits) -> Self {
        let body_time = Duration::from_millis(limits.body_ms);
        Admission {
            connections: Arc::new(Semaphore::new(limits.connections.min(Semaphore::MAX_PERMITS))),
            bodies: BodyMemory::new(limits.body_bytes, body_time, limits.total_body_bytes),
            ordinary: FairQueue::new(limits.fair_queue_permits, limits.fair_queue_waiters),
            renewals: FairQueue::new(limits.fair_queue_permits, limits.renewal_line),
            seats: WaitSlots::new(limits.waiting_per_access_token, limits.waiting()),
            listening: WaitSlots::new(limits.waiting_per_access_token, limits.listening()),
            requests: RateLimiter::new(limits.requests_per_second),
            renewal_requests: RateLimiter::new(limits.renewals_per_second),
            limits,
        }
    }

    /// Lets one more connection in, until this is dropped. `None`: there are as many as there may be.
    pub(crate) fn connect(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.connections).try_acquire_owned().ok()
    }

    /// How many connections there are.
    pub(crate) fn connection_count(&self) -> usize {
        let max = self.limits.connections.min(Semaphore::MAX_PERMITS);
        max.saturating_sub(self.connections.available_permits())
    }

    /// Whether a caller keeps to its pace. `Err`: in how many milliseconds it does. An open server knows no caller, so it limits
    /// no pace.
    pub(crate) fn pace(&self, who: &CallerIdentity, is_renewal: bool, now_ms: u64) -> Result<(), u64> {
        let pace = if is_renewal { &self.renewal_requests } else { &self.requests };
        if *who == CallerIdentity::Anyone { Ok(()) } else { pace.take(who, now_ms) }
    }

    /// A seat for a request that waits, or watches.
    pub(crate) fn seat(&self, who: &CallerIdentity) -> Result<WaitSlot<CallerIdentity>, StoreError> {
        self.seats
            .take(who)
            .map_err(|NoWaitSlot { of, limit }| StoreError::LimitReached {
                message: format!("waiting requests of {of}"),
                limit: limit as u64,
            })
    }

    /// A seat for one that hears of what others do to its holds.
    pub(crate) fn listening_seat(
        &self,
        who: &CallerIdentity,
    ) -> Result<WaitSlot<CallerIdentity>, StoreError> {
        self.listening.take(who).map_err(|NoWaitSlot { limit, .. }| {
            let message = "connections on which holders listen".to_owned();
            StoreError::LimitReached { message, limit: limit as u64 }
        })
    }

    /// Waits for room on the way to the store.
    pub(crate) async fn enter(
        &self,
        way: AdmissionClass,
        who: &CallerIdentity,
        tenant: &Namespace,
        cost: u64,
    ) -> Result<AdmissionPermit, StoreError> {
        let (lane, timeout) = match way {
            AdmissionClass::Ordinary => (&self.ordinary, ORDINARY_PATIENCE),
            AdmissionClass::Renewal => (&self.renewals, RENEWAL_PATIENCE),
            AdmissionClass::Waiting => return self.seat(who).map(AdmissionPermit::Seat),
        };
        match tokio::time::timeout(timeout, lane.enter(tenant, cost)).await {
            Ok(Ok(place)) => Ok(AdmissionPermit::Place(place)),
            Ok(Err(_)) | Err(_) => Err(StoreError::Unavailable {
                message: "the server has more to do than it can; nothing was done".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_makes_room_for_another() {
        let gate = Admission::new(ServerLimits { connections: 2, ..ServerLimits::default() });
        let (one, _two) = (gate.connect().unwrap(), gate.connect().unwrap());
        assert!(gate.connect().is_none());
        assert_eq!(gate.connection_count(), 2, "who was not let in is not counted");
        drop(one);
        assert_eq!(gate.connection_count(), 1);
        assert!(gate.connect().is_some());
    }
}
