//! Every call as the operation that it is, and its answer.

use fencehold_contract::http::{
    self, CallWriter, DeleteScheduleRequest, GetJobRequest, GetLeaseRequest, LeaseSelector, OperationSpec,
    QueueRequest, RevokeLeaseBatchRequest, RevokeLeaseRequest, StoreOperation, op,
};
use fencehold_contract::job::ListJobsRequest;
use fencehold_contract::operation::{
    JobRequest, JobResponse, StoreRequest, StoreResponse, keeps_finished_elsewhere, unfit,
};
use fencehold_contract::problem::ErrorKind;
use fencehold_contract::{CallContext, RevokeLeasesRequest, RevokeTarget, StoreError};
use fencehold_core::job::JobRefusal;
use fencehold_core::{BadInput, Token};

use super::budget::RequestError;
use super::gather::Route;
use super::http_client::{read, write};

/// A call as the operation that it is: sending it is compiled once, not once for each operation.
struct WrittenCall {
    spec: OperationSpec,
    text: String,
    read: fn(&str) -> Result<StoreResponse, RequestError>,
}

struct Writer;

impl CallWriter for Writer {
    type Written = Result<WrittenCall, RequestError>;

    fn write<O: StoreOperation>(self, request: O::Request) -> Self::Written {
        let text = write::<O>(&request)?;
        Ok(WrittenCall { spec: O::SPEC, text, read: |text| read::<O>(text).map(O::response) })
    }
}

/// Most calls are an operation as they are. The others are here.
pub(super) async fn ask(
    wire: &Route<'_>,
    call: &CallContext,
    ask: StoreRequest,
) -> Result<StoreResponse, RequestError> {
    match ask {
        // The server goes from page to page itself.
        StoreRequest::Revoke { request, .. } => {
            let RevokeLeasesRequest { target, by, reason } = request;
            let selector = match target {
                RevokeTarget::Key { key, only_token } => {
                    let request = RevokeLeaseRequest { key, only_token, by, reason };
                    let revoked = wire.send::<op::RevokeLease>(call, &request).await?;
                    return Ok(StoreResponse::Revoked { ended: vec![revoked], next: None });
                }
                RevokeTarget::Task(task) => LeaseSelector::Task { task },
                RevokeTarget::Owner(owner) => LeaseSelector::Owner { owner },
                RevokeTarget::Prefix(prefix) => LeaseSelector::Prefix { prefix },
                RevokeTarget::TaskPrefix(task_prefix) => LeaseSelector::TaskPrefix { task_prefix },
            };
            let request = RevokeLeaseBatchRequest { selector, by, reason };
            let results = wire.send::<op::RevokeLeaseBatch>(call, &request).await?.results;
            Ok(StoreResponse::Revoked { ended: results.into_iter().flatten().collect(), next: None })
        }
        StoreRequest::Get(key) => {
            let view = wire.send::<op::GetLease>(call, &GetLeaseRequest { key }).await?;
            // A key that nothing is kept of has never had a token.
            Ok(StoreResponse::Lease(
                Some(view).filter(|view| view.token != Token::default() || view.waiter_count > 0),
            ))
        }
        StoreRequest::Events(request) => {
            let mut page = wire.send::<op::ListEvents>(call, &request).await?;
            for event in &mut page.events {
                event.namespace = call.namespace.clone();
            }
            Ok(StoreResponse::Events(page))
        }
        StoreRequest::Job(ask) => job(wire, call, ask).await,
        ask => carry(wire, call, ask).await,
    }
}

async fn carry(
    wire: &Route<'_>,
    call: &CallContext,
    ask: StoreRequest,
) -> Result<StoreResponse, RequestError> {
    let written = http::write_call(Writer, ask)
        .map_err(|_| RequestError::Problem(Box::new(keeps_finished_elsewhere().into())))?;
    let WrittenCall { spec, text, read } = written?;
    read(&wire.send_text(spec, call, text).await?)
}

async fn job(
    wire: &Route<'_>,
    call: &CallContext,
    mut ask: JobRequest,
) -> Result<StoreResponse, RequestError> {
    let unfit = match &mut ask {
        JobRequest::Enqueue(jobs) => sift(jobs, unfit::job),
        JobRequest::Report(reports) => sift(reports, unfit::report),
        JobRequest::WriteEffects(entries) => sift(entries, unfit::entry),
        _ => Vec::new(),
    };
    let answer = match ask {
        JobRequest::Get(job) => detail(wire, call, GetJobRequest { job_id: job, wait_ms: None }).await?,
        JobRequest::WaitFor(request) => {
            detail(wire, call, GetJobRequest { job_id: request.id, wait_ms: Some(request.wait_ms) }).await?
        }
        JobRequest::DeleteQueue { queue, by } => {
            let deleted = wire.send::<op::DeleteQueue>(call, &QueueRequest { queue, by }).await;
            JobResponse::Deleted(found_or(deleted, ErrorKind::QueueNotFound)?.is_some())
        }
        JobRequest::DeleteSchedule { name, by } => {
            let deleted = wire
                .send::<op::DeleteSchedule>(call, &DeleteScheduleRequest { schedule: name, by })
                .await;
            JobResponse::Deleted(found_or(deleted, ErrorKind::ScheduleNotFound)?.is_some())
        }
        JobRequest::BeginOperation(request) => {
            let begun = wire.send::<op::BeginOperation>(call, &request).await;
            JobResponse::BegunOperation(refused_or(begun, &[ErrorKind::Conflict])?)
        }
        JobRequest::ResolveEffect(request) => {
            let kinds = [ErrorKind::JobNotFound, ErrorKind::WrongState, ErrorKind::BadInput];
            let resolved = wire.send::<op::ResolveEffect>(call, &request).await;
            JobResponse::ResolvedEffect(refused_or(resolved, &kinds)?.map(drop))
        }
        JobRequest::List(request) => {
            check_labels(&request)?;
            return carry(wire, call, StoreRequest::Job(JobRequest::List(request))).await;
        }
        ask => {
            let mut answer = carry(wire, call, StoreRequest::Job(ask)).await?;
            match &mut answer {
                StoreResponse::Job(JobResponse::Enqueued(results)) => answer_unfit(results, unfit)?,
                StoreResponse::Job(JobResponse::Reported(results)) => answer_unfit(results, unfit)?,
                StoreResponse::Job(JobResponse::WrittenEffects(results)) => answer_unfit(results, unfit)?,
                _ => {}
            }
            return Ok(answer);
        }
    };
    Ok(StoreResponse::Job(answer))
}

/// Leaves the items that can travel, and says for each what is wrong with it: a bad item costs the good ones nothing.
fn sift<T>(items: &mut Vec<T>, check: impl Fn(&T) -> Result<(), BadInput>) -> Vec<Option<BadInput>> {
    let unfit: Vec<Option<BadInput>> = items.iter().map(|item| check(item).err()).collect();
    let mut all = unfit.iter();
    items.retain(|_| all.next().is_some_and(Option::is_none));
    unfit
}

/// Items that did not travel are answered here, in their places.
fn answer_unfit<A>(
    results: &mut Vec<Result<A, JobRefusal>>,
    unfit: Vec<Option<BadInput>>,
) -> Result<(), RequestError> {
    let mut answers = std::mem::take(results).into_iter();
    let answer = |bad: Option<BadInput>| match bad {
        Some(bad) => Some(Err(JobRefusal::BadInput(bad))),
        None => answers.next(),
    };
    let all: Option<Vec<_>> = unfit.into_iter().map(answer).collect();
    let fewer = || RequestError::Unread("it answers fewer items than it was asked".to_owned());
    *results = all.ok_or_else(fewer)?;
    Ok(())
}

/// A missing thing is an answer, not a fault.
fn found_or<T>(found: Result<T, RequestError>, missing: ErrorKind) -> Result<Option<T>, RequestError> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(RequestError::Problem(problem)) if problem.kind == missing => Ok(None),
        Err(fault) => Err(fault),
    }
}

/// A refusal of the rules is an answer, not a fault.
fn refused_or<T>(
    answer: Result<T, RequestError>,
    kinds: &[ErrorKind],
) -> Result<Result<T, JobRefusal>, RequestError> {
    match answer {
        Ok(answer) => Ok(Ok(answer)),
        Err(RequestError::Problem(problem)) if kinds.contains(&problem.kind) => Ok(Err((*problem).into())),
        Err(fault) => Err(fault),
    }
}

async fn detail(
    wire: &Route<'_>,
    call: &CallContext,
    request: GetJobRequest,
) -> Result<JobResponse, RequestError> {
    let found = wire.send::<op::GetJob>(call, &request).await;
    Ok(JobResponse::Job(found_or(found, ErrorKind::JobNotFound)?.map(Box::new)))
}

/// A query writes a label as NAME=VALUE.
fn check_labels(request: &ListJobsRequest) -> Result<(), RequestError> {
    let Some((name, _)) = request.filter.labels.iter().find(|(name, _)| name.contains('=')) else {
        return Ok(());
    };
    let problem = format!("{name:?} has a '=' in its name, which a query cannot tell from the other");
    let error = StoreError::BadInput(BadInput::new("label", problem));
    Err(RequestError::Problem(Box::new(error.into())))
}
