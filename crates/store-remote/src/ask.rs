//! Every call as the operation that it is, and its answer.

use fencehold_contract::http::{
    self, DeleteScheduleRequest, EnqueueJobBatchRequest, GetJobRequest, GetLeaseRequest, LeaseSelector,
    Operation, QueueRequest, ReportAttemptBatchRequest, RevokeLeaseBatchRequest, RevokeLeaseRequest,
    Transport, WriteEffectBatchRequest, op,
};
use fencehold_contract::job::ListJobsRequest;
use fencehold_contract::operation::{Answer, Ask, JobAnswer, JobAsk, keeps_finished_elsewhere, unfit};
use fencehold_contract::problem::ErrorKind;
use fencehold_contract::{CallContext, EventPage, RevokeLeasesRequest, RevokeTarget, StoreError};
use fencehold_core::job::Refusal;
use fencehold_core::{BadInput, Token};

use super::budget::Fault;
use super::wire::Wire;

impl Transport for Wire {
    type Error = Fault;

    async fn send<O: Operation>(&self, call: &CallContext, request: O::Request) -> Result<O::Answer, Fault> {
        Wire::send::<O>(self, call, &request).await
    }
}

/// Most calls are an operation as they are. The others are here.
pub(super) async fn ask(wire: &Wire, call: &CallContext, ask: Ask) -> Result<Answer, Fault> {
    match ask {
        // The server goes from page to page itself.
        Ask::Revoke { request, .. } => {
            let RevokeLeasesRequest { target, by, reason } = request;
            let selector = match target {
                RevokeTarget::Key { key, only_token } => {
                    let request = RevokeLeaseRequest { key, only_token, by, reason };
                    let revoked = wire.send::<op::RevokeLease>(call, &request).await?;
                    return Ok(Answer::Revoked { ended: vec![revoked], next: None });
                }
                RevokeTarget::Task(task) => LeaseSelector::Task { task },
                RevokeTarget::Owner(owner) => LeaseSelector::Owner { owner },
                RevokeTarget::Prefix(prefix) => LeaseSelector::Prefix { prefix },
            };
            let request = RevokeLeaseBatchRequest { selector, by, reason };
            let results = wire.send::<op::RevokeLeaseBatch>(call, &request).await?.results;
            Ok(Answer::Revoked { ended: results.into_iter().flatten().collect(), next: None })
        }
        Ask::Get(key) => {
            let view = wire.send::<op::GetLease>(call, &GetLeaseRequest { key }).await?;
            // A key that nothing is kept of has never had a token.
            Ok(Answer::Lease(
                Some(view).filter(|view| view.token != Token::default() || view.waiter_count > 0),
            ))
        }
        Ask::Events(request) => {
            let EventPage { mut events, next_cursor: next } =
                wire.send::<op::ListEvents>(call, &request).await?;
            for event in &mut events {
                event.namespace = call.namespace.clone();
            }
            Ok(Answer::Events(EventPage { events, next_cursor: next }))
        }
        Ask::Job(ask) => job(wire, call, ask).await,
        ask => carry(wire, call, ask).await,
    }
}

async fn carry(wire: &Wire, call: &CallContext, ask: Ask) -> Result<Answer, Fault> {
    http::send(wire, call, ask)
        .await?
        .map_err(|_| Fault::Problem(Box::new(keeps_finished_elsewhere().into())))
}

async fn job(wire: &Wire, call: &CallContext, ask: JobAsk) -> Result<Answer, Fault> {
    let answer = match ask {
        JobAsk::Enqueue(jobs) => JobAnswer::Enqueued(
            each(jobs, unfit::job, async |jobs| {
                Ok(wire
                    .send::<op::EnqueueJobBatch>(call, &EnqueueJobBatchRequest { jobs })
                    .await?
                    .results)
            })
            .await?,
        ),
        JobAsk::Report(reports) => JobAnswer::Reported(
            each(reports, unfit::report, async |reports| {
                Ok(wire
                    .send::<op::ReportAttemptBatch>(call, &ReportAttemptBatchRequest { reports })
                    .await?
                    .results)
            })
            .await?,
        ),
        JobAsk::WriteEffects(entries) => JobAnswer::WrittenEffects(
            each(entries, unfit::entry, async |entries| {
                Ok(wire
                    .send::<op::WriteEffectBatch>(call, &WriteEffectBatchRequest { entries })
                    .await?
                    .results)
            })
            .await?,
        ),
        JobAsk::Get(job) => detail(wire, call, GetJobRequest { job_id: job, wait_ms: None }).await?,
        JobAsk::WaitFor(request) => {
            detail(wire, call, GetJobRequest { job_id: request.id, wait_ms: Some(request.wait_ms) }).await?
        }
        JobAsk::DeleteQueue { queue, by } => {
            let deleted = wire.send::<op::DeleteQueue>(call, &QueueRequest { queue, by }).await;
            JobAnswer::Deleted(found_or(deleted, ErrorKind::QueueNotFound)?.is_some())
        }
        JobAsk::DeleteSchedule { name, by } => {
            let deleted = wire
                .send::<op::DeleteSchedule>(call, &DeleteScheduleRequest { schedule: name, by })
                .await;
            JobAnswer::Deleted(found_or(deleted, ErrorKind::ScheduleNotFound)?.is_some())
        }
        JobAsk::BeginOperation(request) => {
            let begun = wire.send::<op::BeginOperation>(call, &request).await;
            JobAnswer::BegunOperation(refused_or(begun, &[ErrorKind::Conflict])?)
        }
        JobAsk::ResolveEffect(request) => {
            let kinds = [ErrorKind::JobNotFound, ErrorKind::WrongState, ErrorKind::BadInput];
            let resolved = wire.send::<op::ResolveEffect>(call, &request).await;
            JobAnswer::ResolvedEffect(refused_or(resolved, &kinds)?.map(drop))
        }
        JobAsk::List(request) => {
            check_labels(&request)?;
            return carry(wire, call, Ask::Job(JobAsk::List(request))).await;
        }
        ask => return carry(wire, call, Ask::Job(ask)).await,
    };
    Ok(Answer::Job(answer))
}

/// Sends the items that can travel. The others are answered here, in their places: a bad item costs the good ones
/// nothing.
async fn each<T, A>(
    items: Vec<T>,
    unfit: impl Fn(&T) -> Result<(), BadInput>,
    send: impl AsyncFnOnce(Vec<T>) -> Result<Vec<Result<A, Refusal>>, Fault>,
) -> Result<Vec<Result<A, Refusal>>, Fault> {
    let bad: Vec<Option<BadInput>> = items.iter().map(|item| unfit(item).err()).collect();
    let fit = items
        .into_iter()
        .zip(&bad)
        .filter(|(_, bad)| bad.is_none())
        .map(|(item, _)| item)
        .collect();
    let mut answers = send(fit).await?.into_iter();
    let answer = |bad: Option<BadInput>| match bad {
        Some(bad) => Some(Err(Refusal::BadInput(bad))),
        None => answers.next(),
    };
    let answers: Option<Vec<_>> = bad.into_iter().map(answer).collect();
    answers.ok_or_else(|| Fault::Unread("it answers fewer items than it was asked".to_owned()))
}

/// A missing thing is an answer, not a fault.
fn found_or<T>(found: Result<T, Fault>, missing: ErrorKind) -> Result<Option<T>, Fault> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Fault::Problem(problem)) if problem.kind == missing => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// A refusal of the rules is an answer, not a fault.
fn refused_or<T>(answer: Result<T, Fault>, kinds: &[ErrorKind]) -> Result<Result<T, Refusal>, Fault> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(Fault::Problem(problem)) if kinds.contains(&problem.kind) => Ok(Err((*problem).into())),
        Err(fault) => Err(fault),
    }
}

async fn detail(wire: &Wire, call: &CallContext, request: GetJobRequest) -> Result<JobAnswer, Fault> {
    let found = wire.send::<op::GetJob>(call, &request).await;
    Ok(JobAnswer::Job(found_or(found, ErrorKind::JobNotFound)?.map(Box::new)))
}

/// A query writes a label as NAME=VALUE.
fn check_labels(request: &ListJobsRequest) -> Result<(), Fault> {
    let Some((name, _)) = request.filter.labels.iter().find(|(name, _)| name.contains('=')) else {
        return Ok(());
    };
    let problem = format!("{name:?} has a '=' in its name, which a query cannot tell from the other");
    let error = StoreError::BadInput(BadInput::new("label", problem));
    Err(Fault::Problem(Box::new(error.into())))
}
