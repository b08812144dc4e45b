//! Every question as the operation that asks it, and its answer.

use fencehold_api as api;
use fencehold_api::{Kind, Nothing, op};
use fencehold_contract::job::{BeginRequest, JobsRequest, NewJob};
use fencehold_contract::operation::{Answer, Ask, JobAnswer, JobAsk, unfit};
use fencehold_contract::wire::Across;
use fencehold_contract::{Call, EventPage, StoreError};
use fencehold_core::job::Refusal;
use fencehold_core::{BadInput, Event};

use super::budget::Fault;
use super::wire::Wire;

pub(super) async fn ask(wire: &Wire, call: &Call, ask: Ask) -> Result<Answer, Fault> {
    Ok(match ask {
        Ask::Acquire(request) => {
            Answer::Acquired(wire.send::<op::Acquire>(call, &request.across()).await?.across())
        }
        Ask::Renew(holds) => {
            let holds = api::lease::Holds { holds: holds.across() };
            Answer::Renewed(wire.send::<op::Renew>(call, &holds).await?.across())
        }
        Ask::Release(holds) => {
            let holds = api::lease::Holds { holds: holds.across() };
            Answer::Released(wire.send::<op::Release>(call, &holds).await?.answers.across())
        }
        // The server goes from page to page itself.
        Ask::Revoke { request, .. } => {
            let revoked = wire.send::<op::Revoke>(call, &request.across()).await?.revoked;
            Answer::Revoked { ended: revoked.across(), next: None }
        }
        Ask::Get(key) => {
            let found = wire.send::<op::GetLease>(call, &api::lease::GetRequest { key }).await;
            Answer::Lease(found_or(found, Kind::NoSuchKey)?.map(Across::across))
        }
        Ask::List(request) => {
            Answer::Leases(wire.send::<op::ListLeases>(call, &request.across()).await?.across())
        }
        Ask::Events(request) => {
            Answer::Events(events(call, wire.send::<op::Events>(call, &request.across()).await?))
        }
        Ask::Advance { by, lift } => {
            let request = api::lease::AdvanceRequest { by, lift };
            Answer::Advanced(wire.send::<op::Advance>(call, &request).await?.across())
        }
        Ask::Limits(request) => {
            Answer::Limits(wire.send::<op::Limits>(call, &request.across()).await?.across())
        }
        Ask::OpenNow { by } => {
            wire.send::<op::OpenNow>(call, &api::lease::OpenNowRequest { by }).await?;
            Answer::Opened
        }
        Ask::Status => Answer::Status(wire.send::<op::Status>(call, &Nothing {}).await?.across()),
        Ask::Job(ask) => Answer::Job(job(wire, call, ask).await?),
        Ask::KeepFinished { .. } => {
            let why =
                "how long finished jobs are kept is said in the URL of the server's own store".to_owned();
            return Err(Fault::Stranger(why));
        }
    })
}

async fn job(wire: &Wire, call: &Call, ask: JobAsk) -> Result<JobAnswer, Fault> {
    Ok(match ask {
        JobAsk::Enqueue(jobs) => JobAnswer::Enqueued(
            each(jobs, unfit::job, async |jobs| {
                let jobs = jobs.into_iter().map(new_job).collect();
                Ok(wire
                    .send::<op::Enqueue>(call, &api::job::EnqueueRequest { jobs })
                    .await?
                    .answers
                    .across())
            })
            .await?,
        ),
        JobAsk::Claim(request) => {
            JobAnswer::Claimed(wire.send::<op::Claim>(call, &request.across()).await?.across())
        }
        JobAsk::Renew(attempts) => {
            let attempts = api::job::Attempts { attempts: attempts.across() };
            JobAnswer::Renewed(wire.send::<op::RenewClaims>(call, &attempts).await?.across())
        }
        JobAsk::Report(reports) => JobAnswer::Reported(
            each(reports, unfit::report, async |reports| {
                let request = api::job::ReportRequest { reports: reports.across() };
                Ok(wire.send::<op::ReportJobs>(call, &request).await?.answers.across())
            })
            .await?,
        ),
        JobAsk::Ledger(entries) => JobAnswer::Ledger(
            each(entries, unfit::entry, async |entries| {
                let request = api::job::LedgerRequest { entries: entries.across() };
                Ok(wire.send::<op::WriteLedger>(call, &request).await?.answers.across())
            })
            .await?,
        ),
        JobAsk::Get(job) => {
            JobAnswer::Job(detail(wire, call, api::job::JobRequest { job, wait_ms: None }).await?)
        }
        JobAsk::WaitFor(request) => {
            let request = api::job::JobRequest { job: request.id, wait_ms: Some(request.wait_ms) };
            JobAnswer::Job(detail(wire, call, request).await?)
        }
        JobAsk::List(request) => {
            JobAnswer::Jobs(wire.send::<op::ListJobs>(call, &jobs_request(request)?).await?.across())
        }
        JobAsk::Act(request) => {
            JobAnswer::Acted(wire.send::<op::Act>(call, &request.across()).await?.across())
        }
        JobAsk::Queues => {
            JobAnswer::Queues(wire.send::<op::ListQueues>(call, &Nothing {}).await?.queues.across())
        }
        JobAsk::SetQueue(order) => {
            JobAnswer::Queue(wire.send::<op::SetQueue>(call, &order.across()).await?.across())
        }
        JobAsk::RemoveQueue { queue, by } => {
            let request = api::desk::RemoveQueueRequest { queue, by };
            JobAnswer::Removed(wire.send::<op::RemoveQueue>(call, &request).await?.removed)
        }
        JobAsk::Schedules => {
            JobAnswer::Schedules(wire.send::<op::ListSchedules>(call, &Nothing {}).await?.schedules.across())
        }
        JobAsk::SetSchedule(spec) => {
            let view = wire.send::<op::SetSchedule>(call, &(*spec).across()).await?;
            JobAnswer::Schedule(Box::new(view.across()))
        }
        JobAsk::RemoveSchedule { name, by } => {
            let request = api::desk::RemoveRequest { name, by };
            JobAnswer::Removed(wire.send::<op::RemoveSchedule>(call, &request).await?.removed)
        }
        JobAsk::Begin(request) => {
            JobAnswer::Began(wire.send::<op::Begin>(call, &begin_request(request)).await?.across())
        }
        JobAsk::Findings(request) => {
            JobAnswer::Findings(wire.send::<op::ListFindings>(call, &request.across()).await?.across())
        }
        JobAsk::Resolve(request) => {
            JobAnswer::Resolved(wire.send::<op::Resolve>(call, &request.across()).await?.outcome.across())
        }
    })
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
    answers.ok_or_else(|| Fault::Stranger("it answers fewer items than it was asked".to_owned()))
}

/// A missing thing is an answer, not a fault.
fn found_or<T>(found: Result<T, Fault>, missing: Kind) -> Result<Option<T>, Fault> {
    match found {
        Ok(found) => Ok(Some(found)),
        Err(Fault::Problem(problem)) if problem.kind == missing => Ok(None),
        Err(fault) => Err(fault),
    }
}

async fn detail(
    wire: &Wire,
    call: &Call,
    request: api::job::JobRequest,
) -> Result<Option<Box<fencehold_contract::job::JobDetail>>, Fault> {
    let found = wire.send::<op::GetJob>(call, &request).await;
    Ok(found_or(found, Kind::NoSuchJob)?.map(|detail| Box::new(detail.across())))
}

fn events(call: &Call, page: api::EventPage) -> EventPage {
    let event = |event: api::Event| {
        Event::new(event.seq, event.at.wall_ms, call.namespace.clone(), event.key, event.fact)
    };
    EventPage { events: page.events.into_iter().map(event).collect(), next: page.next }
}

fn new_job(job: NewJob) -> api::job::NewJob {
    api::job::NewJob {
        id: Some(job.id),
        queue: job.queue,
        kind: job.kind,
        payload: job.payload.across(),
        terms: job.terms.across(),
        when: job.when.across(),
        unique: job.unique.across(),
        labels: job.labels.across(),
        trace: job.trace,
        yield_within_ms: job.yield_within_ms,
    }
}

fn begin_request(request: BeginRequest) -> api::desk::BeginRequest {
    api::desk::BeginRequest {
        id: Some(request.id),
        key: request.key,
        payload: request.payload.across(),
        hold: request.hold,
        owner: request.owner,
        ttl_ms: request.ttl_ms,
        window_ms: request.window_ms,
        policy: request.policy,
    }
}

fn jobs_request(request: JobsRequest) -> Result<api::job::JobsRequest, Fault> {
    let JobsRequest { filter, cursor, limit } = request;
    let label = |(name, value): (Box<str>, Box<str>)| {
        if name.contains('=') {
            let problem = format!("{name:?} has a '=' in its name, which a query cannot tell from the other");
            let error = StoreError::BadInput(BadInput::new("label", problem));
            return Err(Fault::Problem(Box::new(error.across())));
        }
        Ok(format!("{name}={value}"))
    };
    Ok(api::job::JobsRequest {
        queue: filter.queue,
        kind: filter.kind,
        state: filter.states,
        label: filter.labels.into_iter().map(label).collect::<Result<_, _>>()?,
        owner: filter.owner,
        payload_contains: filter.payload_contains,
        cursor,
        limit,
    })
}
