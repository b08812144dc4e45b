//! The gate: every limit that a request passes on its way to the store.

use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_core::Namespace;

use super::{Bodies, Connections, Lane, Limits, NoSeat, Pace, Place, Seat, Seats};
use crate::access::Who;

/// How long a request may wait for room before it is shed.
const ORDINARY_PATIENCE: Duration = Duration::from_secs(2);
/// A renewal waits longer: shedding it may cost its sender the lease.
const RENEWAL_PATIENCE: Duration = Duration::from_secs(10);

/// Where the limits are kept.
#[derive(Debug)]
pub(crate) struct Gate {
    pub(crate) limits: Limits,
    pub(crate) connections: Connections,
    pub(crate) bodies: Bodies,
    pub(crate) ordinary: Lane,
    pub(crate) renewals: Lane,
    pub(crate) seats: Seats<Who>,
    /// For those who hear of what others do to their holds.
    listening: Seats<Who>,
    pub(crate) requests: Pace<Who>,
    pub(crate) renewal_requests: Pace<Who>,
}

/// How a request goes to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
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
pub(crate) enum Room {
    Place(Place),
    Seat(Seat<Who>),
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        let body_time = Duration::from_millis(limits.body_ms);
        Gate {
            connections: Connections::new(limits.connections),
            bodies: Bodies::new(limits.body_bytes, body_time, limits.total_body_bytes),
            ordinary: Lane::new(limits.lane_room, limits.lane_line),
            renewals: Lane::new(limits.lane_room, limits.renewal_line),
            seats: Seats::new(limits.waiting_per_access_token, limits.waiting()),
            listening: Seats::new(limits.waiting_per_access_token, limits.listening()),
            requests: Pace::new(limits.requests_per_second),
            renewal_requests: Pace::new(limits.renewals_per_second),
            limits,
        }
    }

    /// Whether a caller keeps to its pace. `Err`: in how many milliseconds it does. An open server knows no caller, so it limits
    /// no pace.
    pub(crate) fn pace(&self, who: &Who, is_renewal: bool, now_ms: u64) -> Result<(), u64> {
        let pace = if is_renewal { &self.renewal_requests } else { &self.requests };
        if *who == Who::Anyone { Ok(()) } else { pace.take(who, now_ms) }
    }

    /// A seat for a request that waits, or watches.
    pub(crate) fn seat(&self, who: &Who) -> Result<Seat<Who>, StoreError> {
        self.seats.take(who).map_err(|no_seat| {
            let (what, limit) = match no_seat {
                NoSeat::OfCaller { limit } => ("waiting requests of this token", limit),
                NoSeat::OfAll { limit } => ("waiting requests of all tokens", limit),
            };
            StoreError::LimitReached { message: what.to_owned(), limit: limit as u64 }
        })
    }

    /// A seat for one that hears of what others do to its holds.
    pub(crate) fn listening_seat(&self, who: &Who) -> Result<Seat<Who>, StoreError> {
        self.listening.take(who).map_err(|no_seat| {
            let (NoSeat::OfCaller { limit } | NoSeat::OfAll { limit }) = no_seat;
            StoreError::LimitReached {
                message: "connections on which holders listen".to_owned(),
                limit: limit as u64,
            }
        })
    }

    /// Waits for room on the way to the store.
    pub(crate) async fn enter(
        &self,
        way: Way,
        who: &Who,
        tenant: &Namespace,
        cost: u64,
    ) -> Result<Room, StoreError> {
        let (lane, patience) = match way {
            Way::Ordinary => (&self.ordinary, ORDINARY_PATIENCE),
            Way::Renewal => (&self.renewals, RENEWAL_PATIENCE),
            Way::Waiting => return self.seat(who).map(Room::Seat),
        };
        match tokio::time::timeout(patience, lane.enter(tenant, cost)).await {
            Ok(Ok(place)) => Ok(Room::Place(place)),
            Ok(Err(_)) | Err(_) => Err(StoreError::Unavailable {
                message: "the server has more to do than it can; nothing was done".to_owned(),
            }),
        }
    }
}
