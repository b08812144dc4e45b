//! Jobs: what is more than one call of the contract.

use fencehold_contract::http::{
    DeleteScheduleRequest, Empty, EnqueueJobBatchRequest, EnqueueJobBatchResponse, GetJobRequest,
    GetQueueRequest, GetScheduleRequest, QueueRequest,
};
use fencehold_contract::job::{
    BeginOperationRequest, BegunOperation, JobCounts, JobDetail, QueueMode, QueueView, ResolveEffectRequest,
    ScheduleView, WaitRequest,
};
use fencehold_contract::operation::jobs_of;
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_core::job::{JobId, JobRefusal, ScheduleName};
use fencehold_core::limits::IDEMPOTENCY_KEY_BYTES_MAX;
use fencehold_core::{BadInput, Namespace};

use super::dispatch::{HandlerResult, RequestContext};
use crate::random;

impl RequestContext {
    /// An id for a job that came without one.
    fn fresh_id(&self) -> HandlerResult<JobId> {
        Ok(JobId::from_random(self.server.clock.now().wall_ms, random()?))
    }
}

pub(crate) async fn enqueue(
    asked: RequestContext,
    request: EnqueueJobBatchRequest,
) -> HandlerResult<EnqueueJobBatchResponse> {
    let key = idempotency_key(&asked)?;
    let mut jobs = Vec::with_capacity(request.jobs.len());
    let mut refused = Vec::new();
    for (nth, mut job) in request.jobs.into_iter().enumerate() {
        match &key {
            _ if !job.id.is_nil() => {
                if let Err(bad) = callers_own(job.id) {
                    refused.push((nth, Err(JobRefusal::BadInput(bad))));
                    continue;
                }
            }
            Some(key) => job.id = same_id(&asked.call.namespace, key, nth),
            None => job.id = asked.fresh_id()?,
        }
        jobs.push(job);
    }
    let mut answers = if jobs.is_empty() && !refused.is_empty() {
        Vec::new()
    } else {
        jobs_of(&asked.store)?.enqueue(&asked.call, jobs).await?
    };
    for (nth, answer) in refused {
        answers.insert(nth.min(answers.len()), answer);
    }
    Ok(EnqueueJobBatchResponse { results: answers })
}

/// An id that a caller made itself. Ids that follow from something are made by stores and servers alone: who could give
/// one would keep the job that is to have it, perhaps another tenant's, from being made.
fn callers_own(id: JobId) -> Result<(), BadInput> {
    if id.is_derived() {
        let problem = "is of the kind that only the store makes (a UUID of version 8): give another, or none";
        return Err(BadInput::new("id", problem));
    }
    Ok(())
}

/// The id of the job at a place in a request under an idempotency key: always the same, so that nothing has to be
/// remembered, by this server or by another.
fn same_id(namespace: &Namespace, key: &str, nth: usize) -> JobId {
    JobId::due(0, &format!("idempotency-key/{namespace}/{nth}/{key}"))
}

fn idempotency_key(asked: &RequestContext) -> HandlerResult<Option<String>> {
    let Some(value) = &asked.idempotency_key else { return Ok(None) };
    match value.to_str() {
        Ok(key) if !key.is_empty() && key.len() <= IDEMPOTENCY_KEY_BYTES_MAX => Ok(Some(key.to_owned())),
        _ => {
            let problem = format!("takes 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes of plain text");
            Err(BadInput::new("Idempotency-Key", problem).into())
        }
    }
}

pub(crate) async fn begin(
    asked: RequestContext,
    mut request: BeginOperationRequest,
) -> HandlerResult<BegunOperation> {
    asked.server.shutdown.check()?;
    if request.job_id.is_nil() {
        request.job_id = asked.fresh_id()?;
    } else {
        callers_own(request.job_id)?;
    }
    Ok(jobs_of(&asked.store)?.begin_operation(&asked.call, request).await??)
}

pub(crate) async fn get(asked: RequestContext, request: GetJobRequest) -> HandlerResult<JobDetail> {
    let (id, jobs) = (request.job_id, jobs_of(&asked.store)?);
    let detail = match request.wait_ms {
        None => jobs.get_job(&asked.call, id).await?,
        Some(wait_ms) => {
            let waiting = jobs.wait_for_job(&asked.call, WaitRequest { id, wait_ms });
            asked.in_line(waiting).await?
        }
    };
    detail.ok_or_else(|| {
        let problem = Problem::new(ErrorKind::JobNotFound, format!("{id}: {}", JobRefusal::JobNotFound));
        problem.with(|problem| problem.job_id = Some(id))
    })
}

pub(crate) async fn get_queue(asked: RequestContext, request: GetQueueRequest) -> HandlerResult<QueueView> {
    let queues = jobs_of(&asked.store)?.list_queues(&asked.call).await?.queues;
    // A queue exists only while it is used: one that has nothing is open and empty.
    Ok(queues.into_iter().find(|view| view.name == request.queue).unwrap_or(QueueView {
        name: request.queue,
        mode: QueueMode::Open,
        job_counts: JobCounts::default(),
        waiting_claim_count: 0,
    }))
}

pub(crate) async fn delete_queue(asked: RequestContext, request: QueueRequest) -> HandlerResult<Empty> {
    let QueueRequest { queue, by } = request;
    if jobs_of(&asked.store)?.delete_queue(&asked.call, queue.clone(), by).await? {
        return Ok(Empty {});
    }
    let problem = Problem::new(ErrorKind::QueueNotFound, format!("there is no queue {queue}"));
    Err(problem.with(|problem| problem.queue = Some(queue)))
}

pub(crate) async fn get_schedule(
    asked: RequestContext,
    request: GetScheduleRequest,
) -> HandlerResult<ScheduleView> {
    let schedules = jobs_of(&asked.store)?.list_schedules(&asked.call).await?;
    let found = schedules.into_iter().find(|view| view.spec.name == request.schedule);
    found.ok_or_else(|| no_schedule(&request.schedule))
}

pub(crate) async fn delete_schedule(
    asked: RequestContext,
    request: DeleteScheduleRequest,
) -> HandlerResult<Empty> {
    let DeleteScheduleRequest { schedule, by } = request;
    let deleted = jobs_of(&asked.store)?
        .delete_schedule(&asked.call, schedule.clone(), by)
        .await?;
    if deleted { Ok(Empty {}) } else { Err(no_schedule(&schedule)) }
}

fn no_schedule(schedule: &ScheduleName) -> Problem {
    Problem::new(ErrorKind::ScheduleNotFound, format!("there is no schedule {schedule}"))
}

pub(crate) async fn resolve_effect(
    asked: RequestContext,
    request: ResolveEffectRequest,
) -> HandlerResult<Empty> {
    let job_id = request.job_id;
    let resolved = jobs_of(&asked.store)?.resolve_effect(&asked.call, request).await?;
    let about = |refusal| Problem::from(refusal).with(|problem| problem.job_id = Some(job_id));
    resolved.map(|()| Empty {}).map_err(about)
}
