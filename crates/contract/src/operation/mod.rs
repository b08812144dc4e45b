//! Every call of the contract, and its answer, as plain data. The same types cross the socket
//! between processes.

mod check;
mod check_job;
mod claim;
mod job;
mod route;
mod route_job;

pub use check::{check_acquire, check_batch, check_limit, check_prefix};
pub use check_job::{check_job, check_json, check_word, is_too_deep, unfit};
pub use claim::{Claim, Unclaimed};
pub use job::{JobAnswer, JobAsk};
pub use route::{Route, jobs_of, keeps_finished_elsewhere, misfit, perform};

use fencehold_core::{Key, Owner, Refusal};
use serde::{Deserialize, Serialize};

use crate::{
    AcquireLeaseRequest, AcquiredLease, AdvancedStore, EventPage, HoldRef, LeasePage, LeaseView,
    ListEventsRequest, ListLeasesRequest, QuotaRequest, QuotaView, ReleasedLease, RenewLeaseBatchResponse,
    RevokeLeasesRequest, RevokedLease, StoreStatus,
};

/// A call of the contract: what is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is named as its method of `LeaseStore`")]
pub enum Ask {
    Acquire(AcquireLeaseRequest),
    Renew(Vec<HoldRef>),
    Release(Vec<HoldRef>),
    /// From a slot on: a revocation of many is asked for page by page.
    Revoke {
        request: RevokeLeasesRequest,
        from: u32,
    },
    Get(Key),
    List(ListLeasesRequest),
    Events(ListEventsRequest),
    Advance {
        by: Owner,
        increment: u64,
    },
    Status,
    Job(JobAsk),
    /// How long finished jobs are to be kept, by the last process that opened the store and named a time.
    KeepFinished {
        ms: u64,
    },
    /// Looks at the limits of a namespace, or sets them.
    Quota(QuotaRequest),
    /// Opens what an advance has closed.
    Reopen {
        by: Owner,
    },
}

impl Ask {
    /// Whether carrying it out twice, or not knowing whether it was carried out, makes no difference.
    pub fn only_reads(&self) -> bool {
        match self {
            Ask::Get(_) | Ask::List(_) | Ask::Events(_) | Ask::Status => true,
            Ask::Job(ask) => ask.only_reads(),
            _ => false,
        }
    }

    /// Whether it needs the jobs, or counts them, or tells what becomes of them. The others are about leases alone.
    pub fn needs_jobs(&self) -> bool {
        match self {
            Ask::Acquire(_)
            | Ask::Renew(_)
            | Ask::Release(_)
            | Ask::Revoke { .. }
            | Ask::Get(_)
            | Ask::List(_)
            | Ask::Reopen { .. } => false,
            Ask::Job(_)
            | Ask::Events(_)
            | Ask::Advance { .. }
            | Ask::Status
            | Ask::Quota(_)
            | Ask::KeepFinished { .. } => true,
        }
    }

    /// Whether its answer may have to wait for the disk. A renewal's does not: a killed process
    /// loses none, and after a power cut every hold has a full ttl anyway.
    pub fn may_sync(&self) -> bool {
        let looks = matches!(self, Ask::Get(_) | Ask::List(_) | Ask::Events(_) | Ask::Status);
        !looks && !matches!(self, Ask::Renew(_) | Ask::Job(JobAsk::Renew(_)))
    }

    /// Whether it may be sent again although it may have been carried out: it names what it means by hold id and token.
    /// Force does not: it could strike a holder that came since.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            Ask::Revoke { .. } | Ask::Advance { .. } => false,
            Ask::Job(ask) => ask.may_be_repeated(),
            _ => true,
        }
    }

    /// How long it may stand in line.
    pub fn wait_ms(&self) -> u64 {
        match self {
            Ask::Acquire(request) => request.wait_ms,
            Ask::Events(request) => request.wait_ms,
            Ask::Job(ask) => ask.wait_ms(),
            _ => 0,
        }
    }

    /// The same question, for an answer at once.
    pub fn wait_no_more(&mut self) {
        match self {
            Ask::Acquire(request) => request.wait_ms = 0,
            Ask::Events(request) => request.wait_ms = 0,
            Ask::Job(JobAsk::Claim(request)) => request.wait_ms = 0,
            Ask::Job(JobAsk::WaitFor(request)) => request.wait_ms = 0,
            _ => {}
        }
    }

    /// The same question, some time later: what it says about time has moved on. A hold id that was never sent stays
    /// new, and one that may have been received before is never called new.
    pub fn aged(&self, by_ms: u64, again: bool) -> Ask {
        let mut ask = self.clone();
        match &mut ask {
            Ask::Acquire(request) => {
                if again || request.hold_id_age_ms > 0 {
                    request.hold_id_age_ms = request.hold_id_age_ms.saturating_add(by_ms).max(1);
                }
                if again {
                    // It stood in line elsewhere; the way to its first place in line is nobody's doing but its own.
                    request.waited_before_ms = request.waited_before_ms.saturating_add(by_ms);
                }
                if again || by_ms > ON_THE_WAY_MS {
                    request.wait_ms = request.wait_ms.saturating_sub(by_ms);
                }
            }
            Ask::Events(request) => request.wait_ms = request.wait_ms.saturating_sub(by_ms),
            Ask::Job(ask) => ask.age(by_ms, again, ON_THE_WAY_MS),
            _ => {}
        }
        ask
    }
}

/// How long a question may be on its way before that is taken off the time it has for standing in line.
const ON_THE_WAY_MS: u64 = 100;

/// What a call of the contract is answered with, if it is not an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is what a method of `LeaseStore` returns")]
pub enum Answer {
    Acquired(AcquiredLease),
    Renewed(RenewLeaseBatchResponse),
    Released(Vec<Result<ReleasedLease, Refusal>>),
    /// Where to go on, if there may be more.
    Revoked {
        ended: Vec<RevokedLease>,
        next: Option<u32>,
    },
    Lease(Option<LeaseView>),
    Leases(LeasePage),
    Events(EventPage),
    Advanced(AdvancedStore),
    Status(StoreStatus),
    Job(JobAnswer),
    KeepsFinished,
    Reopened,
    Quota(QuotaView),
}

impl Answer {
    /// Whether its asker may hold something from now on.
    pub fn grants(&self) -> bool {
        match self {
            Answer::Acquired(_) | Answer::Job(JobAnswer::BegunOperation(_)) => true,
            Answer::Job(JobAnswer::Claimed(claimed)) => !claimed.jobs.is_empty(),
            _ => false,
        }
    }

    /// The time on the way to the sending that was answered counts as time in line: the asker counts from its call.
    pub fn waited_longer(mut self, by_ms: u64) -> Answer {
        match &mut self {
            Answer::Acquired(acquired) => acquired.waited_ms = acquired.waited_ms.saturating_add(by_ms),
            Answer::Renewed(renewed) => renewed.waited_ms = renewed.waited_ms.saturating_add(by_ms),
            Answer::Job(answer) => answer.waited_longer(by_ms),
            _ => {}
        }
        self
    }
}
