//! Jobs, as workers and those who give them work see them.

use fencehold_api::job::{
    Attempts, ClaimRequest, Claimed, EnqueueAnswer, EnqueueRequest, JobDetail, JobPage, JobRequest,
    JobsRequest, LedgerAnswers, LedgerRequest, NewJob, RenewedJobs, ReportAnswer, ReportRequest,
};
use fencehold_api::{Kind, Problem};
use fencehold_contract::job::{JobFilter, WaitRequest};
use fencehold_contract::wire::Across;
use fencehold_contract::{JobStore, LeaseStore, StoreError};
use fencehold_core::job::{JobId, Refusal};
use fencehold_core::limits::IDEMPOTENCY_KEY_BYTES_MAX;
use fencehold_core::{BadInput, Namespace};

use super::answer::{Answer, Asked};

impl Asked {
    /// The jobs of the store, where it has any.
    pub(super) fn jobs(&self) -> Answer<&dyn JobStore> {
        LeaseStore::jobs(&self.store).ok_or_else(|| {
            let store = self.store.capabilities().store.to_owned();
            StoreError::Unsupported { store, what: "keep jobs".to_owned() }.across()
        })
    }

    /// An id for a job that came without one.
    pub(super) fn fresh_id(&self) -> Answer<JobId> {
        let mut bits = [0; 10];
        random(&mut bits).map_err(|error| {
            let why = format!("no randomness can be had: {error}");
            StoreError::Unavailable { why }.across()
        })?;
        Ok(JobId::from_random(self.server.clock.now().wall_ms, bits))
    }
}

#[expect(clippy::disallowed_methods, reason = "an id of a caller that made none itself is made here")]
fn random(bits: &mut [u8]) -> Result<(), getrandom::Error> {
    getrandom::fill(bits)
}

pub(super) async fn enqueue(asked: Asked, request: EnqueueRequest) -> Answer<EnqueueAnswer> {
    let key = idempotency_key(&asked)?;
    let mut jobs = Vec::with_capacity(request.jobs.len());
    let mut refused = Vec::new();
    for (nth, job) in request.jobs.into_iter().enumerate() {
        let id = match (job.id, &key) {
            (Some(id), _) => match callers_own(id) {
                Ok(id) => id,
                Err(bad) => {
                    refused.push((nth, Err(Refusal::BadInput(bad))));
                    continue;
                }
            },
            (None, Some(key)) => same_id(&asked.call.namespace, key, nth),
            (None, None) => asked.fresh_id()?,
        };
        jobs.push(with_id(job, id));
    }
    let mut answers = if jobs.is_empty() && !refused.is_empty() {
        Vec::new()
    } else {
        asked.jobs()?.enqueue(&asked.call, jobs).await.map_err(Across::across)?
    };
    for (nth, answer) in refused {
        answers.insert(nth.min(answers.len()), answer);
    }
    Ok(EnqueueAnswer { answers: answers.across() })
}

/// An id that a caller made itself. Ids that follow from something are made by stores and servers alone: who could give
/// one would keep the job that is to have it, perhaps another tenant's, from being made.
pub(super) fn callers_own(id: JobId) -> Result<JobId, BadInput> {
    if id.is_derived() {
        let problem = "is of the kind that only the store makes (a UUID of version 8): give another, or none";
        return Err(BadInput::new("id", problem));
    }
    Ok(id)
}

/// The id of the job at a place in a request under an idempotency key: always the same, so that nothing has to be
/// remembered, by this server or by another.
fn same_id(namespace: &Namespace, key: &str, nth: usize) -> JobId {
    JobId::due(0, &format!("idempotency-key/{namespace}/{nth}/{key}"))
}

fn idempotency_key(asked: &Asked) -> Answer<Option<String>> {
    let Some(value) = &asked.idempotency_key else { return Ok(None) };
    match value.to_str() {
        Ok(key) if !key.is_empty() && key.len() <= IDEMPOTENCY_KEY_BYTES_MAX => Ok(Some(key.to_owned())),
        _ => {
            let problem = format!("takes 1 to {IDEMPOTENCY_KEY_BYTES_MAX} bytes of plain text");
            Err(StoreError::BadInput(BadInput::new("Idempotency-Key", problem)).across())
        }
    }
}

fn with_id(job: NewJob, id: JobId) -> fencehold_contract::job::NewJob {
    fencehold_contract::job::NewJob {
        id,
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

pub(super) async fn claim(asked: Asked, request: ClaimRequest) -> Answer<Claimed> {
    let claimed = asked.in_line(asked.jobs()?.claim(&asked.call, request.across())).await?;
    Ok(claimed.across())
}

pub(super) async fn renew(asked: Asked, request: Attempts) -> Answer<RenewedJobs> {
    let renewed = asked.jobs()?.renew_claims(&asked.call, request.attempts.across()).await;
    renewed.map(Across::across).map_err(Across::across)
}

pub(super) async fn report(asked: Asked, request: ReportRequest) -> Answer<ReportAnswer> {
    let answers = asked.jobs()?.report(&asked.call, request.reports.across()).await;
    answers
        .map(|answers| ReportAnswer { answers: answers.across() })
        .map_err(Across::across)
}

pub(super) async fn ledger(asked: Asked, request: LedgerRequest) -> Answer<LedgerAnswers> {
    let answers = asked.jobs()?.ledger(&asked.call, request.entries.across()).await;
    answers
        .map(|answers| LedgerAnswers { answers: answers.across() })
        .map_err(Across::across)
}

pub(super) async fn get(asked: Asked, request: JobRequest) -> Answer<JobDetail> {
    let (id, jobs) = (request.job, asked.jobs()?);
    let detail = match request.wait_ms {
        None => jobs.job(&asked.call, id).await.map_err(Across::across)?,
        Some(wait_ms) => asked.in_line(jobs.wait_for(&asked.call, WaitRequest { id, wait_ms })).await?,
    };
    detail.map(Across::across).ok_or_else(|| {
        let refusal = fencehold_core::job::Refusal::Unknown;
        let mut problem = Problem::new(Kind::NoSuchJob, format!("{id}: {refusal}"));
        problem.job = Some(id);
        problem
    })
}

pub(super) async fn list(asked: Asked, request: JobsRequest) -> Answer<JobPage> {
    let JobsRequest { queue, kind, state: states, label: labels, owner, payload_contains, cursor, limit } =
        request;
    let label = |text: String| {
        let bad = || BadInput::new("label", format!("{text:?} is not NAME=VALUE"));
        let split = text.split_once('=').map(|(name, value)| (name.into(), value.into()));
        split.ok_or_else(|| StoreError::BadInput(bad()).across())
    };
    let labels = labels.into_iter().map(label).collect::<Answer<_>>()?;
    let filter = JobFilter { queue, kind, states, labels, owner, payload_contains };
    let request = fencehold_contract::job::JobsRequest { filter, cursor, limit };
    let page = asked.jobs()?.jobs(&asked.call, request).await;
    page.map(Across::across).map_err(Across::across)
}
