//! Everything that can be asked about jobs, and the answers, as plain data.

use fencehold_core::Owner;
use fencehold_core::job::{JobId, QueueName, Refusal, ReportedAttempt, ScheduleName};
use serde::{Deserialize, Serialize};

use crate::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, BegunOperation,
    ChangeJobBatchResponse, ChangeJobsRequest, ClaimJobsRequest, ClaimedJobs, EffectPage, EnqueuedJob,
    JobDetail, JobPage, LedgerResponse, ListEffectsRequest, ListJobsRequest, NewJob, QueueView,
    RenewAttemptBatchResponse, ResolveEffectRequest, ScheduleSpec, ScheduleView, SetQueueModeRequest,
    WaitRequest,
};

/// A call of the contract about jobs: what is asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is named as its method of `JobStore`")]
pub enum JobAsk {
    Enqueue(Vec<NewJob>),
    Claim(ClaimJobsRequest),
    Renew(Vec<AttemptRef>),
    Report(Vec<AttemptReport>),
    WriteEffects(Vec<AttemptLedgerEntry>),
    Get(JobId),
    WaitFor(WaitRequest),
    List(ListJobsRequest),
    Change(ChangeJobsRequest),
    Queues,
    SetQueueMode(SetQueueModeRequest),
    Schedules,
    SetSchedule(Box<ScheduleSpec>),
    DeleteSchedule { name: ScheduleName, by: Owner },
    BeginOperation(BeginOperationRequest),
    Effects(ListEffectsRequest),
    ResolveEffect(ResolveEffectRequest),
    DeleteQueue { queue: QueueName, by: Owner },
}

impl JobAsk {
    /// Whether carrying it out twice, or not knowing whether it was carried out, makes no difference.
    pub fn only_reads(&self) -> bool {
        matches!(
            self,
            JobAsk::Get(_)
                | JobAsk::WaitFor(_)
                | JobAsk::List(_)
                | JobAsk::Queues
                | JobAsk::Schedules
                | JobAsk::Effects(_)
        )
    }

    /// Whether it may leave something behind in its namespace, for which that must exist. The others speak of what is
    /// there already, and where nothing is they learn so.
    pub fn may_leave_something(&self) -> bool {
        matches!(
            self,
            JobAsk::Enqueue(_)
                | JobAsk::Claim(_)
                | JobAsk::BeginOperation(_)
                | JobAsk::SetQueueMode(_)
                | JobAsk::SetSchedule(_)
        )
    }

    /// Whether it may be sent again although it may have been carried out. A person's act may not: the job could have
    /// gone on since.
    pub fn may_be_repeated(&self) -> bool {
        match self {
            JobAsk::Change(request) => request.dry_run,
            JobAsk::ResolveEffect(_) => false,
            _ => true,
        }
    }

    /// How long it may stand in line.
    pub fn wait_ms(&self) -> u64 {
        match self {
            JobAsk::Claim(request) => request.wait_ms,
            JobAsk::WaitFor(request) => request.wait_ms,
            _ => 0,
        }
    }

    /// The same question, some time later.
    pub fn age(&mut self, by_ms: u64, again: bool, on_the_way_ms: u64) {
        match self {
            JobAsk::Claim(request) => {
                if again {
                    request.waited_before_ms = request.waited_before_ms.saturating_add(by_ms);
                }
                if again || by_ms > on_the_way_ms {
                    request.wait_ms = request.wait_ms.saturating_sub(by_ms);
                }
            }
            JobAsk::WaitFor(request) => request.wait_ms = request.wait_ms.saturating_sub(by_ms),
            _ => {}
        }
    }
}

/// What a call about jobs is answered with, if it is not an error.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "each is what a method of `JobStore` returns")]
pub enum JobAnswer {
    Enqueued(Vec<Result<EnqueuedJob, Refusal>>),
    Claimed(ClaimedJobs),
    Renewed(RenewAttemptBatchResponse),
    Reported(Vec<Result<ReportedAttempt, Refusal>>),
    WrittenEffects(Vec<Result<LedgerResponse, Refusal>>),
    Job(Option<Box<JobDetail>>),
    Jobs(JobPage),
    Changed(ChangeJobBatchResponse),
    Queues(Vec<QueueView>),
    Queue(QueueView),
    Schedules(Vec<ScheduleView>),
    Schedule(Box<ScheduleView>),
    Deleted(bool),
    BegunOperation(Result<BegunOperation, Refusal>),
    Effects(EffectPage),
    ResolvedEffect(Result<(), Refusal>),
}

impl JobAnswer {
    /// The time on the way counts as time in line.
    pub fn waited_longer(&mut self, by_ms: u64) {
        match self {
            JobAnswer::Claimed(claimed) => claimed.waited_ms = claimed.waited_ms.saturating_add(by_ms),
            JobAnswer::Renewed(renewed) => renewed.waited_ms = renewed.waited_ms.saturating_add(by_ms),
            JobAnswer::BegunOperation(Ok(began)) => began.waited_ms = began.waited_ms.saturating_add(by_ms),
            _ => {}
        }
    }
}
