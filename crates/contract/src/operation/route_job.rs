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

    async fn renew_attempts(
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

    async fn write_effects(
        &self,
        call: &CallContext,
        entries: Vec<AttemptLedgerEntry>,
    ) -> Result<Vec<Result<LedgerResponse, Refusal>>, StoreError> {
        job_answer!(self, call, JobAsk::WriteEffects(entries), WrittenEffects)
    }

    async fn list_jobs(&self, call: &CallContext, request: ListJobsRequest) -> Result<JobPage, StoreError> {
        job_answer!(self, call, JobAsk::List(request), Jobs)
    }

    async fn change_jobs(
        &self,
        call: &CallContext,
        request: ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, StoreError> {
        job_answer!(self, call, JobAsk::Change(request), Changed)
    }

    async fn list_queues(&self, call: &CallContext) -> Result<Vec<QueueView>, StoreError> {
        job_answer!(self, call, JobAsk::Queues, Queues)
    }

    async fn set_queue_mode(
        &self,
        call: &CallContext,
        order: SetQueueModeRequest,
    ) -> Result<QueueView, StoreError> {
        job_answer!(self, call, JobAsk::SetQueueMode(order), Queue)
    }

    async fn list_schedules(&self, call: &CallContext) -> Result<Vec<ScheduleView>, StoreError> {
        job_answer!(self, call, JobAsk::Schedules, Schedules)
    }

    async fn delete_queue(
        &self,
        call: &CallContext,
        queue: QueueName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        job_answer!(self, call, JobAsk::DeleteQueue { queue, by }, Deleted)
    }

    async fn delete_schedule(
        &self,
        call: &CallContext,
        name: ScheduleName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        job_answer!(self, call, JobAsk::DeleteSchedule { name, by }, Deleted)
    }

    async fn begin_operation(
        &self,
        call: &CallContext,
        request: BeginOperationRequest,
    ) -> Result<Result<BegunOperation, Refusal>, StoreError> {
        job_answer!(self, call, JobAsk::BeginOperation(request), BegunOperation)
    }

    async fn list_effects(
        &self,
        call: &CallContext,
        request: ListEffectsRequest,
    ) -> Result<EffectPage, StoreError> {
        job_answer!(self, call, JobAsk::Effects(request), Effects)
    }

    async fn resolve_effect(
        &self,
        call: &CallContext,
        request: ResolveEffectRequest,
    ) -> Result<Result<(), Refusal>, StoreError> {
        job_answer!(self, call, JobAsk::ResolveEffect(request), ResolvedEffect)
    }

    async fn get_job(&self, call: &CallContext, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        let found: Result<Option<Box<JobDetail>>, StoreError> = job_answer!(self, call, JobAsk::Get(id), Job);
        found.map(|job| job.map(|job| *job))
    }

    async fn wait_for_job(
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
        JobAsk::Renew(attempts) => JobAnswer::Renewed(jobs.renew_attempts(call, attempts).await?),
        JobAsk::Report(reports) => JobAnswer::Reported(jobs.report(call, reports).await?),
        JobAsk::WriteEffects(entries) => JobAnswer::WrittenEffects(jobs.write_effects(call, entries).await?),
        JobAsk::Get(id) => JobAnswer::Job(jobs.get_job(call, id).await?.map(Box::new)),
        JobAsk::WaitFor(request) => JobAnswer::Job(jobs.wait_for_job(call, request).await?.map(Box::new)),
        JobAsk::List(request) => JobAnswer::Jobs(jobs.list_jobs(call, request).await?),
        JobAsk::Change(request) => JobAnswer::Changed(jobs.change_jobs(call, request).await?),
        JobAsk::Queues => JobAnswer::Queues(jobs.list_queues(call).await?),
        JobAsk::SetQueueMode(order) => JobAnswer::Queue(jobs.set_queue_mode(call, order).await?),
        JobAsk::DeleteQueue { queue, by } => JobAnswer::Deleted(jobs.delete_queue(call, queue, by).await?),
        JobAsk::Schedules => JobAnswer::Schedules(jobs.list_schedules(call).await?),
        JobAsk::SetSchedule(spec) => JobAnswer::Schedule(Box::new(jobs.set_schedule(call, *spec).await?)),
        JobAsk::DeleteSchedule { name, by } => {
            JobAnswer::Deleted(jobs.delete_schedule(call, name, by).await?)
        }
        JobAsk::BeginOperation(request) => {
            JobAnswer::BegunOperation(jobs.begin_operation(call, request).await?)
        }
        JobAsk::Effects(request) => JobAnswer::Effects(jobs.list_effects(call, request).await?),
        JobAsk::ResolveEffect(request) => {
            JobAnswer::ResolvedEffect(jobs.resolve_effect(call, request).await?)
        }
    })
}
