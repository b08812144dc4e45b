//! Everything that can be asked of the engine, and its answers, as plain data. The same types cross the socket
//! between processes.

use fencehold_core::{Key, Owner, Refusal, Token};
use serde::{Deserialize, Serialize};

use super::jobs::{JobAnswer, JobAsk};
use crate::lease::{
    AcquireRequest, Acquired, Advanced, EventPage, EventsRequest, HoldRef, LeasePage, LeaseView, ListRequest,
    Renewed, RevokeRequest, RevokedLease, StoreStatus,
};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    Acquire(AcquireRequest),
    Renew(Vec<HoldRef>),
    Release(Vec<HoldRef>),
    /// From a slot on: a revocation of many is asked for page by page.
    Revoke {
        request: RevokeRequest,
        from: u32,
    },
    Get(Key),
    List(ListRequest),
    Events(EventsRequest),
    Advance {
        by: Owner,
        lift: u64,
    },
    Status,
    Job(JobAsk),
}

impl Ask {
    /// Whether carrying it out twice, or not knowing whether it was carried out, makes no difference.
    #[cfg(feature = "file")]
    pub(crate) fn only_reads(&self) -> bool {
        match self {
            Ask::Get(_) | Ask::List(_) | Ask::Events(_) | Ask::Status => true,
            Ask::Job(ask) => ask.only_reads(),
            _ => false,
        }
    }

    /// Whether it may be sent again although it may have been carried out: it names what it means by hold id and token.
    /// Force does not: it could strike somebody who came since.
    #[cfg(feature = "file")]
    pub(crate) fn may_be_repeated(&self) -> bool {
        match self {
            Ask::Revoke { .. } | Ask::Advance { .. } => false,
            Ask::Job(ask) => ask.may_be_repeated(),
            _ => true,
        }
    }

    /// How long it may stand in line.
    #[cfg(feature = "file")]
    pub(crate) fn wait_ms(&self) -> u64 {
        match self {
            Ask::Acquire(request) => request.wait_ms,
            Ask::Events(request) => request.wait_ms,
            Ask::Job(ask) => ask.wait_ms(),
            _ => 0,
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Answer {
    Acquired(Acquired),
    Renewed(Renewed),
    Released(Vec<Result<Token, Refusal>>),
    /// Where to go on, if there may be more.
    Revoked {
        ended: Vec<RevokedLease>,
        next: Option<u32>,
    },
    Lease(Option<LeaseView>),
    Leases(LeasePage),
    Events(EventPage),
    Advanced(Advanced),
    Status(StoreStatus),
    Job(JobAnswer),
}
