//! Every call of the contract, and its answer, as plain data. The same types cross the socket
//! between processes.
//!
//! A call is one row of `calls!`: from it follow the variant that asks, the variant that answers, the method of the trait that
//! callers use, and the match that has a store carry it out.

mod calls;
mod check;
mod check_job;
mod job;
mod route;
mod undelivered;

pub(crate) use calls::{Packed, calls, plain};
pub use check_job::{check_job, check_json, check_word, is_too_deep, unfit};
pub use route::{Route, jobs_of, keeps_finished_elsewhere, perform, unexpected_response, unsupported};
pub(crate) use route::{checked, revoke_all};
pub use undelivered::{CallHold, UndeliveredGrant};

pub use crate::job::{JobRequest, JobResponse};
pub use crate::lease::{StoreRequest, StoreResponse};

impl StoreRequest {
    /// Whether carrying it out twice, or not knowing whether it was carried out, makes no difference.
    pub fn only_reads(&self) -> bool {
        match self {
            StoreRequest::Get(_) | StoreRequest::List(_) | StoreRequest::Events(_) | StoreRequest::Status => {
                true
            }
            StoreRequest::Job(ask) => ask.only_reads(),
            _ => false,
        }
    }

    /// Whether it needs the jobs, or counts them, or tells what becomes of them. The others are about leases alone.
    pub fn needs_jobs(&self) -> bool {
        match self {
            StoreRequest::Acquire(_)
            | StoreRequest::Renew(_)
            | StoreRequest::Release(_)
            | StoreRequest::Revoke { .. }
            | StoreRequest::Get(_)
            | StoreRequest::List(_)
            | StoreRequest::Reopen { .. } => false,
            StoreRequest::Job(_)
            | StoreRequest::Events(_)
            | StoreRequest::Advance { .. }
            | StoreRequest::Status
            | StoreRequest::Quota(_)
            | StoreRequest::KeepFinished { .. } => true,
        }
    }

    /// Whether its answer may have to wait for the disk. A renewal's does not: a killed process
    /// loses none, and after a power cut every hold has a full ttl anyway.
    pub fn may_sync(&self) -> bool {
        let looks = matches!(
            self,
            StoreRequest::Get(_) | StoreRequest::List(_) | StoreRequest::Events(_) | StoreRequest::Status
        );
        !looks && !matches!(self, StoreRequest::Renew(_) | StoreRequest::Job(JobRequest::Renew(_)))
    }

    /// Whether it may be sent again although it may have been carried out: it names what it means by hold id and token.
    /// Force does not: it could strike a holder that came since.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            StoreRequest::Revoke { .. } | StoreRequest::Advance { .. } => false,
            StoreRequest::Job(ask) => ask.may_be_repeated(),
            _ => true,
        }
    }

    /// How long it may stand in line.
    pub fn wait_ms(&self) -> u64 {
        match self {
            StoreRequest::Acquire(request) => request.wait_ms,
            StoreRequest::Events(request) => request.wait_ms,
            StoreRequest::Job(ask) => ask.wait_ms(),
            _ => 0,
        }
    }

    /// The same question, for an answer at once.
    pub fn wait_no_more(&mut self) {
        match self {
            StoreRequest::Acquire(request) => request.wait_ms = 0,
            StoreRequest::Events(request) => request.wait_ms = 0,
            StoreRequest::Job(JobRequest::Claim(request)) => request.wait_ms = 0,
            StoreRequest::Job(JobRequest::WaitFor(request)) => request.wait_ms = 0,
            _ => {}
        }
    }

    /// The same question, some time later: what it says about time has moved on. A hold id that was never sent stays
    /// new, and one that may have been received before is never called new.
    pub fn aged(&self, by_ms: u64, again: bool) -> StoreRequest {
        let mut ask = self.clone();
        match &mut ask {
            StoreRequest::Acquire(request) => {
                if again || request.hold_id_age_ms > 0 {
                    request.hold_id_age_ms = request.hold_id_age_ms.saturating_add(by_ms).max(1);
                }
                if again {
                    // It stood in line elsewhere; the way to its first place in line does not count.
                    request.waited_before_ms = request.waited_before_ms.saturating_add(by_ms);
                }
                if again || by_ms > ON_THE_WAY_MS {
                    request.wait_ms = request.wait_ms.saturating_sub(by_ms);
                }
            }
            StoreRequest::Events(request) => request.wait_ms = request.wait_ms.saturating_sub(by_ms),
            StoreRequest::Job(ask) => ask.age(by_ms, again, ON_THE_WAY_MS),
            _ => {}
        }
        ask
    }
}

/// How long a question may be on its way before that is taken off the time it has for standing in line.
const ON_THE_WAY_MS: u64 = 100;

impl StoreResponse {
    /// Whether its asker may hold something from now on.
    pub fn grants(&self) -> bool {
        match self {
            StoreResponse::Acquired(_) | StoreResponse::Job(JobResponse::BegunOperation(_)) => true,
            StoreResponse::Job(JobResponse::Claimed(claimed)) => !claimed.jobs.is_empty(),
            _ => false,
        }
    }

    /// The time on the way to the sending that was answered counts as time in line: the asker counts from its call.
    pub fn waited_longer(mut self, by_ms: u64) -> StoreResponse {
        match &mut self {
            StoreResponse::Acquired(acquired) => {
                acquired.waited_ms = acquired.waited_ms.saturating_add(by_ms);
            }
            StoreResponse::Renewed(renewed) => renewed.waited_ms = renewed.waited_ms.saturating_add(by_ms),
            StoreResponse::Job(answer) => answer.waited_longer(by_ms),
            _ => {}
        }
        self
    }
}
