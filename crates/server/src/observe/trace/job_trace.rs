//! The story of a job: its enqueuing, and every attempt at it, each linked to the one before.

use fencehold_contract::job::{AttemptView, ClaimedJob, JobDetail, NewJob};
use fencehold_core::job::{AttemptOutcome, JobId, JobKind, QueueName};
use fencehold_core::{Key, Namespace, Token};

use crate::observe::label;

use super::{Attribute, Span, SpanKind, TraceContext};

/// Where the enqueuing of a job stands, and what it is a part of: what the job itself says, else what the request says,
/// else nothing, and it begins a trace of its own.
pub(crate) fn enqueuing(job: &NewJob, request: Option<TraceContext>) -> (TraceContext, Option<[u8; 8]>) {
    let names: [&[u8]; 2] = [b"enqueue", job.id.as_bytes()];
    match job.traceparent.as_deref().and_then(TraceContext::parse).or(request) {
        Some(parent) => (parent.with_span_of(&names), Some(parent.span)),
        None => (TraceContext::derived(&names), None),
    }
}

/// Where a worker's own spans belong: under the attempt that it makes.
pub(crate) fn working(claimed: &ClaimedJob) -> Option<TraceContext> {
    let enqueued = claimed.traceparent.as_deref().and_then(TraceContext::parse)?;
    Some(attempting(enqueued, claimed.id, claimed.token))
}

/// Where a hold of a key stands that was asked for without a trace.
pub(crate) fn holding(namespace: &Namespace, key: &Key, token: Token) -> TraceContext {
    TraceContext::derived(&[
        b"hold",
        namespace.as_str().as_bytes(),
        key.as_str().as_bytes(),
        &token.get().to_be_bytes(),
    ])
}

fn attempting(enqueued: TraceContext, job: JobId, token: Token) -> TraceContext {
    enqueued.with_span_of(&[b"attempt", job.as_bytes(), &token.get().to_be_bytes()])
}

/// What is always told of a job.
pub(crate) fn about(
    namespace: &Namespace,
    id: JobId,
    queue: &QueueName,
    kind: &JobKind,
) -> Vec<(&'static str, Attribute)> {
    vec![
        ("fencehold.namespace", namespace.to_string().into()),
        ("fencehold.job_id", id.to_string().into()),
        ("fencehold.queue", queue.to_string().into()),
        ("fencehold.kind", kind.to_string().into()),
        // By the conventions for messaging, which tools for traces know.
        ("messaging.system", "fencehold".to_owned().into()),
        ("messaging.destination.name", queue.to_string().into()),
        ("messaging.message.id", id.to_string().into()),
    ]
}

/// The attempt under this token, which has ended; and those right before it that were not reported.
pub(crate) fn attempts(namespace: &Namespace, detail: &JobDetail, token: Token) -> Vec<Span> {
    let Some(enqueued) = detail.traceparent.as_deref().and_then(TraceContext::parse) else {
        return Vec::new();
    };
    let Some(last) = detail.attempts.iter().position(|attempt| attempt.token == token) else {
        return Vec::new();
    };
    let untold = detail.attempts[..last]
        .iter()
        .rev()
        .take_while(|attempt| !is_reported(attempt.outcome))
        .count();
    (last - untold..=last)
        .filter_map(|nth| {
            let attempt = detail.attempts.get(nth)?;
            let before = nth.checked_sub(1).and_then(|before| detail.attempts.get(before));
            Some(span(namespace, detail, enqueued, attempt, before))
        })
        .collect()
}

fn span(
    namespace: &Namespace,
    detail: &JobDetail,
    enqueued: TraceContext,
    attempt: &AttemptView,
    before: Option<&AttemptView>,
) -> Span {
    let job = &detail.job;
    let mut attributes = about(namespace, job.id, &job.queue, &job.kind);
    attributes.push(("fencehold.token", attempt.token.get().into()));
    attributes.push(("fencehold.owner", attempt.owner.to_string().into()));
    attributes.push(("fencehold.outcome", label(&attempt.outcome).into()));
    let error = match (&attempt.error, is_reported(attempt.outcome)) {
        (Some(error), _) => Some(error.to_string()),
        (None, false) => Some(attempt.outcome.to_string()),
        (None, true) => None,
    };
    Span {
        at: attempting(enqueued, job.id, attempt.token),
        parent: Some(enqueued.span),
        links: before
            .map(|before| attempting(enqueued, job.id, before.token))
            .into_iter()
            .collect(),
        name: "job_attempt".into(),
        kind: SpanKind::Consumer,
        start_wall_us: attempt.started_at_ms.saturating_mul(1_000),
        end_wall_us: attempt.ended_at_ms.saturating_mul(1_000),
        attributes,
        error,
    }
}

/// Whether its holder said how it ended: then it has been reported already.
fn is_reported(how: AttemptOutcome) -> bool {
    matches!(
        how,
        AttemptOutcome::Completed
            | AttemptOutcome::CompletedLate
            | AttemptOutcome::Failed
            | AttemptOutcome::FailedLate
            | AttemptOutcome::Snoozed
            | AttemptOutcome::Released
    )
}
