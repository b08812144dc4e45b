//! How much of everything: so that no caller, however loud or slow, takes the server from the others.
//!
//! Nouns: a `Lane` is work of one kind, fair between tenants; renewals have one of their own, and are shed last,
//! because a holder that cannot renew loses what it holds. `Pace` is requests a second, `Seats` are requests that wait.

mod body;
mod connections;
mod gate;
mod lane;
mod pace;
mod seats;

use fencehold_contract::http::BODY_BYTES_MAX;

pub(crate) use body::{BadBody, Bodies, NoMemory, Share};
pub(crate) use connections::{Admitted, Connections};
pub(crate) use gate::{Gate, Room, Way};
pub(crate) use lane::{Lane, Place};
pub(crate) use pace::Pace;
pub(crate) use seats::{NoSeat, Seat, Seats};

/// One connection of so many is for those who do not wait.
const CONNECTIONS_PER_SPARE: usize = 10;

/// Every limit of a server. Which of them is how much used stands in its metrics.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Limits {
    /// Connections at once. One more is answered 503 and closed.
    pub connections: usize,
    /// How long the head of a request may take, and how long a connection may be idle.
    pub header_ms: u64,
    /// How long the body of a request may take.
    pub body_ms: u64,
    /// The largest body.
    pub body_bytes: usize,
    /// The bodies of all requests at once.
    pub total_body_bytes: usize,
    /// Requests of one token that wait for something, at once.
    pub waiting_per_access_token: usize,
    /// Requests a second of one token, renewals apart; 0: no limit.
    pub requests_per_second: u64,
    /// Renewals a second of one token; 0: no limit.
    pub renewals_per_second: u64,
    /// Items at work in the store at once, in each of the two lanes.
    pub lane_room: u64,
    /// Requests of one namespace that may wait for room, renewals apart.
    pub lane_line: usize,
    /// Renewals of one namespace that may wait for room.
    pub renewal_line: usize,
}

impl Limits {
    /// Requests that wait for something, at once: each keeps a connection, and they must not have all of them.
    pub fn waiting(&self) -> usize {
        let spare = (self.connections / CONNECTIONS_PER_SPARE).max(1);
        self.connections.saturating_sub(spare)
    }

    /// Connections on which holders hear of what others do to their holds, at once: half of what those who wait leave over.
    pub fn listening(&self) -> usize {
        self.connections.saturating_sub(self.waiting()) / 2
    }
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            connections: 10_000,
            header_ms: 20_000,
            body_ms: 30_000,
            body_bytes: BODY_BYTES_MAX,
            total_body_bytes: 256 << 20,
            waiting_per_access_token: 10_000,
            requests_per_second: 10_000,
            renewals_per_second: 10_000,
            lane_room: 16_384,
            lane_line: 10_000,
            renewal_line: 50_000,
        }
    }
}
