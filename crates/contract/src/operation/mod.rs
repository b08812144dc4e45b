//! Every call of the contract, and its answer, as plain data. The same types cross the socket
//! between processes.
//!
//! A call is one row of `calls!`: from it follow the variant that asks, the variant that answers, the method of the trait that
//! callers use, the match that has a store carry it out, and what is known of the call (`Mark`).

mod backend;
mod calls;
mod check;
mod check_job;
mod undelivered;

pub use backend::{
    StoreBackend, StoreFuture, jobs_of, keeps_finished_elsewhere, perform, unexpected_response, unsupported,
};
pub(crate) use backend::{ask, revoke_all};
pub(crate) use calls::{Mark, Packed, calls, plain};
pub use check_job::{check_job, check_json, check_word, is_too_deep, unfit};
pub use undelivered::{CallHold, UndeliveredGrant};

pub use crate::job::{JobRequest, JobResponse};
pub use crate::lease::{StoreRequest, StoreResponse};

/// The traits that callers use may grow: only a [`StoreBackend`] has this, so nothing else can implement them.
pub(crate) mod sealed {
    pub trait Sealed {}
    impl<T: super::StoreBackend + ?Sized> Sealed for T {}
}

impl From<JobRequest> for StoreRequest {
    fn from(ask: JobRequest) -> Self {
        StoreRequest::Job(ask)
    }
}

impl TryFrom<StoreResponse> for JobResponse {
    type Error = StoreResponse;

    fn try_from(answer: StoreResponse) -> Result<Self, StoreResponse> {
        match answer {
            StoreResponse::Job(answer) => Ok(answer),
            other => Err(other),
        }
    }
}

impl StoreRequest {
    /// Whether carrying it out twice, or not knowing whether it was carried out, makes no difference.
    pub fn only_reads(&self) -> bool {
        match self {
            StoreRequest::Job(ask) => ask.is(Mark::Reads),
            ask => ask.is(Mark::Reads),
        }
    }

    /// Whether it needs the jobs, or counts them, or tells what becomes of them. The others are about leases alone.
    pub fn needs_jobs(&self) -> bool {
        !self.is(Mark::LeasesAlone) && !matches!(self, StoreRequest::Revoke { .. })
    }

    /// Whether its answer may have to wait for the disk. A renewal's does not: a killed process
    /// loses none, and after a power cut every hold has a full ttl anyway.
    pub fn may_sync(&self) -> bool {
        let renews = matches!(self, StoreRequest::Renew(_) | StoreRequest::Job(JobRequest::Renew(_)));
        !renews && !self.is(Mark::Reads)
    }

    /// Whether it may be sent again although it may have been carried out: it names what it means by hold id and token.
    /// Force does not: it could strike a holder that came since. Nor does a person's act: the job could have gone on since.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            StoreRequest::Revoke { .. } => false,
            StoreRequest::Job(JobRequest::Change(request)) => request.dry_run,
            StoreRequest::Job(ask) => !ask.is(Mark::Once),
            ask => !ask.is(Mark::Once),
        }
    }

    /// How long it may stand in line.
    pub fn wait_ms(&self) -> u64 {
        match self {
            StoreRequest::Acquire(request) => request.wait_ms,
            StoreRequest::Events(request) => request.wait_ms,
            StoreRequest::Job(JobRequest::Claim(request)) => request.wait_ms,
            StoreRequest::Job(JobRequest::WaitFor(request)) => request.wait_ms,
            _ => 0,
        }
    }

    fn set_wait_ms(&mut self, wait_ms: u64) {
        match self {
            StoreRequest::Acquire(request) => request.wait_ms = wait_ms,
            StoreRequest::Events(request) => request.wait_ms = wait_ms,
            StoreRequest::Job(JobRequest::Claim(request)) => request.wait_ms = wait_ms,
            StoreRequest::Job(JobRequest::WaitFor(request)) => request.wait_ms = wait_ms,
            _ => {}
        }
    }

    /// The same question, for an answer at once.
    pub fn wait_no_more(&mut self) {
        self.set_wait_ms(0);
    }

    /// The same question, some time later: what it says about time has moved on. A hold id that was never sent stays
    /// new, and one that may have been received before is never called new.
    pub fn aged(&self, by_ms: u64, again: bool) -> StoreRequest {
        let mut ask = self.clone();
        // Of one that stood in line elsewhere; the way to its first place in line does not count.
        let waited_ms = if again { by_ms } else { 0 };
        let is_late = match &mut ask {
            StoreRequest::Acquire(request) => {
                if again || request.hold_id_age_ms > 0 {
                    request.hold_id_age_ms = request.hold_id_age_ms.saturating_add(by_ms).max(1);
                }
                request.waited_before_ms = request.waited_before_ms.saturating_add(waited_ms);
                again || by_ms > ON_THE_WAY_MS
            }
            StoreRequest::Job(JobRequest::Claim(request)) => {
                request.waited_before_ms = request.waited_before_ms.saturating_add(waited_ms);
                again || by_ms > ON_THE_WAY_MS
            }
            _ => true,
        };
        if is_late {
            ask.set_wait_ms(self.wait_ms().saturating_sub(by_ms));
        }
        ask
    }
}

/// How long a question may be on its way before that is taken off the time it has for standing in line.
const ON_THE_WAY_MS: u64 = 100;

impl JobRequest {
    /// Whether it may leave something behind in its namespace, for which that must exist. The others speak of what is
    /// there already, and where nothing is they learn so.
    pub fn may_leave_something(&self) -> bool {
        self.is(Mark::Creates)
    }
}

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
        let waited_ms = match &mut self {
            StoreResponse::Acquired(acquired) => &mut acquired.waited_ms,
            StoreResponse::Renewed(renewed) => &mut renewed.waited_ms,
            StoreResponse::Job(JobResponse::Claimed(claimed)) => &mut claimed.waited_ms,
            StoreResponse::Job(JobResponse::Renewed(renewed)) => &mut renewed.waited_ms,
            StoreResponse::Job(JobResponse::BegunOperation(Ok(began))) => &mut began.waited_ms,
            _ => return self,
        };
        *waited_ms = waited_ms.saturating_add(by_ms);
        self
    }
}
