//! What traces get of calls.

use std::sync::Arc;

use fencehold_contract::job::{AttemptReport, NewJob, Report};
use fencehold_contract::operation::{JobRequest, JobResponse, StoreRequest, StoreResponse};
use fencehold_contract::{AcquiredLease, CallContext, HoldRef, StoreError};
use fencehold_core::Token;
use fencehold_core::job::JobId;

use super::{ActTimes, AuthorizedStore, RequestedAct, SpanDetails};
use crate::observe::{Span, SpanKind, TraceContext, about, attempts, enqueuing, holding, working};

/// What a trace needs of a call, which the store takes.
#[derive(Debug, Default)]
pub(super) struct Traced {
    /// Of jobs that are enqueued.
    spans: Vec<Span>,
    /// Of holds that are renewed or released.
    held: Vec<TraceContext>,
    /// For each report, the attempt that it ends, if it does.
    ending: Vec<Option<(JobId, Token)>>,
}

/// How many holds of a batch a span is linked to.
const LINKS_MAX: usize = 32;

impl AuthorizedStore {
    /// Looks at a call before it is carried out. Jobs get their place in a trace.
    pub(super) fn before(&self, call: &CallContext, ask: &mut StoreRequest) -> Traced {
        let mut traced = Traced::default();
        if !self.server.tracer.is_on() {
            return traced;
        }
        match ask {
            StoreRequest::Renew(holds) | StoreRequest::Release(holds) => traced.held = held(call, holds),
            StoreRequest::Job(JobRequest::Enqueue(jobs)) => traced.spans = self.place_in_trace(call, jobs),
            StoreRequest::Job(JobRequest::Report(reports)) => {
                traced.ending = reports.iter().map(ended_by).collect();
            }
            _ => {}
        }
        traced
    }

    /// Tells a trace what came of it.
    pub(super) fn after(
        &self,
        act: RequestedAct,
        call: &CallContext,
        took: ActTimes,
        traced: Traced,
        outcome: &mut Result<StoreResponse, StoreError>,
    ) {
        if !self.server.tracer.is_on() {
            return;
        }
        let Traced { spans, held, ending } = traced;
        let telling = match outcome {
            Ok(StoreResponse::Acquired(acquired)) => self.granted(call, acquired),
            Ok(StoreResponse::Renewed(_) | StoreResponse::Released(_)) => self.later(held),
            Ok(StoreResponse::Job(JobResponse::Claimed(claimed))) => {
                let mut links = Vec::new();
                for job in &mut claimed.jobs {
                    if let Some(attempt) = working(job) {
                        links.push(attempt);
                        job.traceparent = Some(attempt.to_string().into());
                    }
                }
                SpanDetails { links, ..self.plain() }
            }
            Ok(StoreResponse::Job(JobResponse::Enqueued(results))) => {
                for (span, result) in spans.into_iter().zip(results) {
                    if matches!(result, Ok(enqueued) if !enqueued.existed) {
                        let ActTimes { start_wall_us, end_wall_us } = took;
                        self.server.tracer.record(Span { start_wall_us, end_wall_us, ..span });
                    }
                }
                self.plain()
            }
            Ok(StoreResponse::Job(JobResponse::Reported(results))) => {
                let ended = ending.into_iter().zip(results);
                let ended = ended.filter_map(|(attempt, result)| attempt.filter(|_| result.is_ok()));
                self.tell_of_attempts(call, ended.collect());
                self.plain()
            }
            Err(_) if !held.is_empty() => self.later(held),
            _ => self.plain(),
        };
        self.tell(act, call, took, outcome, || telling);
    }

    /// Gives every job its place in a trace, which it carries from here to its end, and says what is to be reported of it once
    /// it is in its queue.
    fn place_in_trace(&self, call: &CallContext, jobs: &mut [NewJob]) -> Vec<Span> {
        let place = |job: &mut NewJob| {
            let (at, parent) = enqueuing(job, self.trace);
            job.traceparent = Some(at.to_string().into());
            Span {
                at,
                parent,
                links: Vec::new(),
                name: self.operation.into(),
                kind: SpanKind::Producer,
                start_wall_us: 0,
                end_wall_us: 0,
                attributes: about(&call.namespace, job.id, &job.queue, &job.kind),
                error: None,
            }
        };
        jobs.iter_mut().map(place).collect()
    }

    /// Tells of attempts that have ended, after the report has been answered.
    fn tell_of_attempts(&self, call: &CallContext, ended: Vec<(JobId, Token)>) {
        if ended.is_empty() {
            return;
        }
        let Some(teller) = self.server.tracer.teller(ended.len()) else { return };
        let (server, call) = (Arc::clone(&self.server), call.clone());
        tokio::spawn(async move {
            let _teller = teller;
            let Some(kept) = server.store.jobs() else { return };
            for (id, token) in ended {
                if let Ok(Some(detail)) = kept.get_job(&call, id).await {
                    for span in attempts(&call.namespace, &detail, token) {
                        server.tracer.record(span);
                    }
                }
            }
        });
    }

    /// The grant itself is where everything about this hold hangs.
    fn granted(&self, call: &CallContext, acquired: &AcquiredLease) -> SpanDetails {
        let hold = holding(&call.namespace, &acquired.key, acquired.grant.token);
        let at = self.trace.map_or(hold, |trace| TraceContext { span: hold.span, ..trace });
        let attributes = vec![
            ("fencehold.key", acquired.key.to_string().into()),
            ("fencehold.token", acquired.grant.token.get().into()),
            ("fencehold.waited_ms", acquired.waited_ms.into()),
        ];
        SpanDetails { at, parent: self.trace.map(|trace| trace.span), links: Vec::new(), attributes }
    }

    /// What comes after a grant hangs from it: in the request's own trace, else in the one that the grant began.
    fn later(&self, held: Vec<TraceContext>) -> SpanDetails {
        let parent = self.trace.or(held.first().copied());
        let links = match self.trace {
            Some(trace) => held.into_iter().map(|hold| TraceContext { span: hold.span, ..trace }).collect(),
            None => held,
        };
        let at = self.server.tracer.fresh(parent);
        SpanDetails { at, parent: parent.map(|parent| parent.span), links, attributes: Vec::new() }
    }
}

/// The grants of these holds.
fn held(call: &CallContext, holds: &[HoldRef]) -> Vec<TraceContext> {
    let named = holds.iter().take(LINKS_MAX);
    named.map(|hold| holding(&call.namespace, &hold.key, hold.token)).collect()
}

/// The attempt that a report ends, if it does.
fn ended_by(report: &AttemptReport) -> Option<(JobId, Token)> {
    let ends = !matches!(report.report, Report::Checkpoint { .. } | Report::Progress { .. });
    ends.then_some((report.attempt.job_id, report.attempt.token))
}
