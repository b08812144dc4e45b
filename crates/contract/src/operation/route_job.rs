//! The jobs of stores that carry every call as one question to an engine.

use async_trait::async_trait;
use fencehold_core::Owner;
use fencehold_core::job::{JobId, QueueName, Refusal, ReportedAttempt, ScheduleName};

use crate::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, BegunOperation,
    ChangeJobBatchResponse, ChangeJobsRequest, ClaimJobsRequest, ClaimedJobs, EffectPage, EnqueuedJob,
    JobDetail, JobPage, JobStore, LedgerResponse, ListEffectsRequest, ListJobsRequest, NewJob, QueueView,
    RenewAttemptBatchResponse, ResolveEffectRequest, ScheduleSpec, ScheduleView, SetQueueModeRequest,
    WaitRequest,
};
use crate::operation::{Answer, Ask, JobAnswer, JobAsk, Route, misfit};
use crate::{CallContext, StoreError};

macro_rules! job_answer {
    ($route:expr, $call:expr, $ask:expr, $answer:ident) => {
        match $route.route($call, Ask::Job($ask)).await? {
            Answer::Job(JobAnswer::$answer(answer)) => Ok(answer),
            _ => Err(misfit()),
        }
    };
}

#[async_trait]
impl<R: Route + std::fmt::Debug> JobStore for R {
    async fn enqueue(
        &self,
        call: &CallContext,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<EnqueuedJob, Refusal>>, StoreError> {
        job_answer!(self, call, JobAsk::Enqueue(jobs), Enqueued)
    }

    async fn claim(&self, call: &CallContext, request: ClaimJobsRequest) -> Result<ClaimedJobs, StoreError> {
        job_answer!(self, call, JobAsk::Claim(request), Claimed)
    }

    async fn renew_claims(
        &self,
        call: &CallContext,
        attempts: Vec<AttemptRef>,
    ) -> Result<RenewAttemptBatchResponse, StoreError> {
        job_answer!(self, call, JobAsk::Renew(attempts), Renewed)
    }

    async fn report(
        &self,
        call: &CallContext,
        reports: Vec<AttemptReport>,
    ) -> Result<Vec<Result<ReportedAttempt, Refusal>>, StoreError> {
        job_answer!(self, call, JobAsk::Report(reports), Reported)
    }

    async fn ledger(
        &self,
        call: &CallContext,
        entries: Vec<AttemptLedgerEntry>,
    ) -> Result<Vec<Result<LedgerResponse, Refusal>>, StoreError> {
        job_answer!(self, call, JobAsk::Ledger(entries), Ledger)
    }

    async fn jobs(&self, call: &CallContext, request: ListJobsRequest) -> Result<JobPage, StoreError> {
        job_answer!(self, call, JobAsk::List(request), Jobs)
    }

    async fn act(
        &self,
        call: &CallContext,
        request: ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, StoreError> {
        job_answer!(self, call, JobAsk::Act(request), Acted)
    }

    async fn queues(&self, call: &CallContext) -> Result<Vec<QueueView>, StoreError> {
        job_answer!(self, call, JobAsk::Queues, Queues)
    }

    async fn set_queue(
        &self,
        call: &CallContext,
        order: SetQueueModeRequest,
    ) -> Result<QueueView, StoreError> {
        job_answer!(self, call, JobAsk::SetQueue(order), Queue)
    }

    async fn schedules(&self, call: &CallContext) -> Result<Vec<ScheduleView>, StoreError> {
        job_answer!(self, call, JobAsk::Schedules, Schedules)
    }

    async fn remove_queue(
        &self,
        call: &CallContext,
        queue: QueueName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        job_answer!(self, call, JobAsk::RemoveQueue { queue, by }, Removed)
    }

    async fn remove_schedule(
        &self,
        call: &CallContext,
        name: ScheduleName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        job_answer!(self, call, JobAsk::RemoveSchedule { name, by }, Removed)
    }

    async fn begin(
        &self,
        call: &CallContext,
        request: BeginOperationRequest,
    ) -> Result<BegunOperation, StoreError> {
        job_answer!(self, call, JobAsk::Begin(request), Began)
    }

    async fn findings(
        &self,
        call: &CallContext,
        request: ListEffectsRequest,
    ) -> Result<EffectPage, StoreError> {
        job_answer!(self, call, JobAsk::Findings(request), Findings)
    }

    async fn resolve(
        &self,
        call: &CallContext,
        request: ResolveEffectRequest,
    ) -> Result<Result<(), Refusal>, StoreError> {
        job_answer!(self, call, JobAsk::Resolve(request), Resolved)
    }

    async fn job(&self, call: &CallContext, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        let found: Result<Option<Box<JobDetail>>, StoreError> = job_answer!(self, call, JobAsk::Get(id), Job);
        found.map(|job| job.map(|job| *job))
    }

    async fn wait_for(
        &self,
        call: &CallContext,
        request: WaitRequest,
    ) -> Result<Option<JobDetail>, StoreError> {
        let found: Result<Option<Box<JobDetail>>, StoreError> =
            job_answer!(self, call, JobAsk::WaitFor(request), Job);
        found.map(|job| job.map(|job| *job))
    }

    async fn set_schedule(&self, call: &CallContext, spec: ScheduleSpec) -> Result<ScheduleView, StoreError> {
        let made: Result<Box<ScheduleView>, StoreError> =
            job_answer!(self, call, JobAsk::SetSchedule(Box::new(spec)), Schedule);
        made.map(|made| *made)
    }
}

/// Has a store carry out a call about jobs.
pub(super) async fn perform_job(
    jobs: &dyn JobStore,
    call: &CallContext,
    ask: JobAsk,
) -> Result<JobAnswer, StoreError> {
    Ok(match ask {
        JobAsk::Enqueue(new) => JobAnswer::Enqueued(jobs.enqueue(call, new).await?),
        JobAsk::Claim(request) => JobAnswer::Claimed(jobs.claim(call, request).await?),
        JobAsk::Renew(attempts) => JobAnswer::Renewed(jobs.renew_claims(call, attempts).await?),
        JobAsk::Report(reports) => JobAnswer::Reported(jobs.report(call, reports).await?),
        JobAsk::Ledger(entries) => JobAnswer::Ledger(jobs.ledger(call, entries).await?),
        JobAsk::Get(id) => JobAnswer::Job(jobs.job(call, id).await?.map(Box::new)),
        JobAsk::WaitFor(request) => JobAnswer::Job(jobs.wait_for(call, request).await?.map(Box::new)),
        JobAsk::List(request) => JobAnswer::Jobs(jobs.jobs(call, request).await?),
        JobAsk::Act(request) => JobAnswer::Acted(jobs.act(call, request).await?),
        JobAsk::Queues => JobAnswer::Queues(jobs.queues(call).await?),
        JobAsk::SetQueue(order) => JobAnswer::Queue(jobs.set_queue(call, order).await?),
        JobAsk::RemoveQueue { queue, by } => JobAnswer::Removed(jobs.remove_queue(call, queue, by).await?),
        JobAsk::Schedules => JobAnswer::Schedules(jobs.schedules(call).await?),
        JobAsk::SetSchedule(spec) => JobAnswer::Schedule(Box::new(jobs.set_schedule(call, *spec).await?)),
        JobAsk::RemoveSchedule { name, by } => {
            JobAnswer::Removed(jobs.remove_schedule(call, name, by).await?)
        }
        JobAsk::Begin(request) => JobAnswer::Began(jobs.begin(call, request).await?),
        JobAsk::Findings(request) => JobAnswer::Findings(jobs.findings(call, request).await?),
        JobAsk::Resolve(request) => JobAnswer::Resolved(jobs.resolve(call, request).await?),
    })
}
