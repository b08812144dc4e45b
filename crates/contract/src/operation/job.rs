//! What is known of each call about jobs, and of its answer.

use super::{StoreRequest, StoreResponse};
use crate::job::{JobRequest, JobResponse};

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

impl JobRequest {
    /// Whether carrying it out twice, or not knowing whether it was carried out, makes no difference.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            JobRequest::Get(_)
                | JobRequest::WaitFor(_)
                | JobRequest::List(_)
                | JobRequest::Queues
                | JobRequest::Schedules
                | JobRequest::Effects(_)
        )
    }

    /// Whether it may leave something behind in its namespace, for which that must exist. The others speak of what is
    /// there already, and where nothing is they learn so.
    pub fn may_leave_something(&self) -> bool {
        matches!(
            self,
            JobRequest::Enqueue(_)
                | JobRequest::Claim(_)
                | JobRequest::BeginOperation(_)
                | JobRequest::SetQueueMode(_)
                | JobRequest::SetSchedule(_)
        )
    }

    /// Whether it may be sent again although it may have been carried out. A person's act may not: the job could have
    /// gone on since.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            JobRequest::Change(request) => request.dry_run,
            JobRequest::ResolveEffect(_) => false,
            _ => true,
        }
    }

    /// How long it may stand in line.
    pub fn wait_ms(&self) -> u64 {
        match self {
            JobRequest::Claim(request) => request.wait_ms,
            JobRequest::WaitFor(request) => request.wait_ms,
            _ => 0,
        }
    }

    /// The same question, some time later.
    pub fn age(&mut self, by_ms: u64, again: bool, on_the_way_ms: u64) {
        match self {
            JobRequest::Claim(request) => {
                if again {
                    request.waited_before_ms = request.waited_before_ms.saturating_add(by_ms);
                }
                if again || by_ms > on_the_way_ms {
                    request.wait_ms = request.wait_ms.saturating_sub(by_ms);
                }
            }
            JobRequest::WaitFor(request) => request.wait_ms = request.wait_ms.saturating_sub(by_ms),
            _ => {}
        }
    }
}

impl JobResponse {
    /// The time on the way counts as time in line.
    pub fn waited_longer(&mut self, by_ms: u64) {
        match self {
            JobResponse::Claimed(claimed) => claimed.waited_ms = claimed.waited_ms.saturating_add(by_ms),
            JobResponse::Renewed(renewed) => renewed.waited_ms = renewed.waited_ms.saturating_add(by_ms),
            JobResponse::BegunOperation(Ok(began)) => began.waited_ms = began.waited_ms.saturating_add(by_ms),
            _ => {}
        }
    }
}
