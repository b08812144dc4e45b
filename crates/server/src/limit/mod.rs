//! How much of everything: so that no caller, however loud or slow, takes the server from the others.
//!
//! Nouns: a `FairQueue` is work of one kind, fair between tenants; renewals have one of their own, and are shed last,
//! because a holder that cannot renew loses what it holds. `RateLimiter` is requests a second, `WaitSlots` are requests that wait.

mod admission;
mod body;
mod fair_queue;
mod rate;
mod wait_slots;

use fencehold_contract::http::BODY_BYTES_MAX;
use serde::Deserialize;

pub(crate) use admission::{Admission, AdmissionClass, AdmissionPermit};
pub(crate) use body::{BadBody, BodyBytes, BodyMemory, MemoryShare, NoMemory};
pub(crate) use fair_queue::{FairQueue, FairQueuePermit};
pub(crate) use rate::RateLimiter;
pub(crate) use wait_slots::{NoWaitSlot, WaitSlot, WaitSlots};

use crate::config::ms;

/// One connection of so many is for those who do not wait.
const CONNECTIONS_PER_SPARE: usize = 10;

/// Every limit of a server, as its settings name it. Which of them is how much used stands in its metrics.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct ServerLimits {
    /// Connections at once. One more is answered 503 and closed.
    pub connections: usize,
    /// How long the head of a request may take, and how long a connection may be idle.
    #[serde(rename = "header_timeout", deserialize_with = "ms")]
    pub header_ms: u64,
    /// How long the body of a request may take.
    #[serde(rename = "body_timeout", deserialize_with = "ms")]
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
    /// Items at work in the store at once, in each of the two lanes. No setting, as those below.
    #[serde(skip)]
    pub fair_queue_permits: u64,
    /// Requests of one namespace that may wait for room, renewals apart.
    #[serde(skip)]
    pub fair_queue_waiters: usize,
    /// Renewals of one namespace that may wait for room.
    #[serde(skip)]
    pub renewal_line: usize,
}

impl ServerLimits {
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

impl Default for ServerLimits {
    fn default() -> Self {
        ServerLimits {
            connections: 10_000,
            header_ms: 20_000,
            body_ms: 30_000,
            body_bytes: BODY_BYTES_MAX,
            total_body_bytes: 256 << 20,
            waiting_per_access_token: 10_000,
            requests_per_second: 10_000,
            renewals_per_second: 10_000,
            fair_queue_permits: 16_384,
            fair_queue_waiters: 10_000,
            renewal_line: 50_000,
        }
    }
}
