//! Calls of the contract at the desk: what each needs, what of it is audited, and what of its answer this caller may see.

use async_trait::async_trait;
use fencehold_contract::http::{HttpOperation as _, Scope, op};
use fencehold_contract::job::{
    AttemptLedgerEntry, ChangeJobBatchResponse, ChangeJobsRequest, EffectResolution, JobAction, JobDetail,
    JobSelector, LedgerEntry, LedgerResponse, OperationStatus,
};
use fencehold_contract::metrics::StoreMetrics;
use fencehold_contract::operation::{
    JobRequest, JobResponse, StoreBackend, StoreRequest, StoreResponse, perform,
};
use fencehold_contract::{
    CallContext, Capabilities, RevokeLeasesRequest, RevokeTarget, StoreError, StoreStatus,
};
use fencehold_core::job::JobRefusal;
use fencehold_core::{Owner, Refusal};

use super::{AuthorizedStore, Force, RequestedAct};
use crate::audit::AuditOutcome;
use crate::observe::{OperationKind, is_wrong_hold};

#[async_trait]
impl StoreBackend for AuthorizedStore {
    async fn execute(&self, call: &CallContext, mut ask: StoreRequest) -> Result<StoreResponse, StoreError> {
        let act = self.act(&ask);
        self.allow_contents(act, call, &ask)?;
        let force = force(act, call, &ask);
        let begins = effects_begun(&ask);
        let traced = self.before(call, &mut ask);
        let work = Box::pin(perform(&*self.server.store, call, ask));
        let (mut outcome, took) = self.through(act, call, force, outcome, work).await;
        self.count(act, &begins, &outcome);
        self.after(act, call, took, traced, &mut outcome);
        outcome.map(|answer| self.as_seen(answer))
    }

    fn capabilities(&self) -> Capabilities {
        self.server.store.capabilities()
    }

    fn metrics(&self) -> Option<&StoreMetrics> {
        self.server.store.metrics()
    }

    /// The store is the server's, and goes on.
    async fn close(&self) {}
}

impl AuthorizedStore {
    /// What a call is. One that is not named here reads, or is an act of force.
    fn act(&self, ask: &StoreRequest) -> RequestedAct {
        let act = |kind| RequestedAct::new(kind, self.needs);
        match ask {
            StoreRequest::Acquire(request) => {
                act(OperationKind::Acquire).of(request.any_of.len()).waiting(request.wait_ms)
            }
            StoreRequest::Renew(holds) => act(OperationKind::Renew).of(holds.len()).renewing(),
            StoreRequest::Release(holds) => act(OperationKind::Release).of(holds.len()),
            StoreRequest::ReportBlockedWrite(_) => act(OperationKind::Report),
            StoreRequest::Events(request) => act(OperationKind::Look).waiting(request.wait_ms),
            StoreRequest::Quota(request) if request.quota.is_none() => act(OperationKind::Look).everywhere(),
            StoreRequest::Quota(_) | StoreRequest::Advance { .. } | StoreRequest::Reopen { .. } => {
                act(OperationKind::Force).everywhere()
            }
            StoreRequest::Job(job) => match job {
                JobRequest::Enqueue(jobs) => act(OperationKind::Enqueue).of(jobs.len()),
                JobRequest::Claim(request) => act(OperationKind::Claim).waiting(request.wait_ms),
                JobRequest::BeginOperation(_) => act(OperationKind::Claim).waiting(0),
                JobRequest::Renew(attempts) => act(OperationKind::Renew).of(attempts.len()).renewing(),
                JobRequest::Report(reports) => act(OperationKind::Report).of(reports.len()),
                JobRequest::WriteEffects(entries) => act(OperationKind::Report).of(entries.len()),
                JobRequest::WaitFor(request) => act(OperationKind::Look).waiting(request.wait_ms),
                JobRequest::Change(request) => act(OperationKind::Force).of(match &request.selector {
                    JobSelector::Ids { job_ids } => job_ids.len(),
                    JobSelector::Filter { .. } | JobSelector::All {} => request.limit,
                }),
                _ if ask.only_reads() => act(OperationKind::Look),
                _ => act(OperationKind::Force),
            },
            ask if ask.only_reads() => act(OperationKind::Look),
            _ => act(OperationKind::Force),
        }
    }

    /// Whether this caller may ask for what is in the call, too.
    fn allow_contents(
        &self,
        act: RequestedAct,
        call: &CallContext,
        ask: &StoreRequest,
    ) -> Result<(), StoreError> {
        match ask {
            StoreRequest::Job(JobRequest::WriteEffects(entries)) if entries.iter().any(makes_a_job) => {
                self.may_enqueue(act, call, "an effect with an undo job enqueues it")
            }
            StoreRequest::Job(JobRequest::SetSchedule(_)) => {
                self.may_enqueue(act, call, "a schedule enqueues jobs")
            }
            StoreRequest::Job(JobRequest::List(request))
                if request.filter.payload_contains.is_some() && !self.caller.sees_payloads() =>
            {
                let why = "searching payloads needs a token with the scope job:payload".to_owned();
                Err(StoreError::Forbidden { message: why })
            }
            _ => Ok(()),
        }
    }

    /// Whether this caller may put jobs into queues too. What is recorded for later is checked when it is
    /// recorded, not later.
    fn may_enqueue(&self, act: RequestedAct, call: &CallContext, why: &str) -> Result<(), StoreError> {
        if self.caller.scopes.allow(Scope::JobEnqueue) {
            return Ok(());
        }
        let needs = op::EnqueueJobBatch::SPEC.scopes;
        let denied = self.allow(RequestedAct { needs, ..act }, &call.namespace, None);
        denied.map_err(|error| match error {
            StoreError::Forbidden { message: needs } => {
                StoreError::Forbidden { message: format!("{why}: {needs}") }
            }
            error => error,
        })
    }

    fn count(&self, act: RequestedAct, begins: &[bool], outcome: &Result<StoreResponse, StoreError>) {
        let metrics = &self.server.metrics;
        match outcome {
            Ok(StoreResponse::Acquired(acquired)) => {
                metrics.waited_ms.record(acquired.waited_ms);
                if acquired.waited_ms > 0 {
                    metrics.contended.add_one();
                }
            }
            Err(StoreError::Refused { refusal: Refusal::Held { .. }, .. })
                if act.kind == OperationKind::Acquire =>
            {
                metrics.contended.add_one();
            }
            Ok(StoreResponse::Renewed(renewed)) => metrics.renewals(&renewed.results, is_wrong_hold),
            Ok(StoreResponse::Job(JobResponse::Renewed(renewed))) => {
                metrics.renewals(&renewed.results, is_forged);
            }
            Err(_) if act.kind == OperationKind::Renew => metrics.renewals_failed.add(act.cost as u64),
            Ok(StoreResponse::Released(results)) => metrics.forged(results, is_wrong_hold),
            Ok(StoreResponse::Job(JobResponse::Reported(results))) => metrics.forged(results, is_forged),
            Ok(StoreResponse::Job(JobResponse::Enqueued(results))) => {
                let existed = results.iter().flatten().filter(|enqueued| enqueued.existed).count();
                metrics.dedup_hits.add(existed as u64);
            }
            Ok(StoreResponse::Job(JobResponse::BegunOperation(Ok(begun))))
                if !matches!(begun.operation, OperationStatus::Started { .. }) =>
            {
                metrics.operation_hits.add_one();
            }
            Ok(StoreResponse::Job(JobResponse::WrittenEffects(results))) => {
                let is_hit = |(result, begins): &(&Result<LedgerResponse, JobRefusal>, &bool)| {
                    **begins && matches!(result, Ok(LedgerResponse::Recorded { .. }))
                };
                metrics
                    .effect_hits
                    .add(results.iter().zip(begins).filter(is_hit).count() as u64);
            }
            _ => {}
        }
    }

    /// An answer as this caller may see it.
    fn as_seen(&self, mut answer: StoreResponse) -> StoreResponse {
        match &mut answer {
            StoreResponse::Status(status) if !self.caller.is_operator() => hide_counts(status),
            StoreResponse::Job(JobResponse::Job(Some(detail))) if !self.caller.sees_payloads() => {
                hide_payloads(detail);
            }
            StoreResponse::Job(JobResponse::Schedules(schedules)) if !self.caller.sees_payloads() => {
                for schedule in schedules {
                    schedule.spec.payload = HIDDEN.into();
                }
            }
            _ => {}
        }
        answer
    }
}

/// Counts are of all namespaces together, and how much others do is not this caller's business.
fn hide_counts(status: &mut StoreStatus) {
    (status.key_count, status.held_count, status.waiter_count) = (0, 0, 0);
    (status.job_count, status.unreadable_row_count) = (0, 0);
    status.maintenance_errors.clear();
    status.counts_hidden = true;
}

/// Those who only look need a scope of their own for what a job is about.
fn hide_payloads(detail: &mut JobDetail) {
    let hide = |text: &mut Option<Box<str>>| {
        if text.is_some() {
            *text = Some(HIDDEN.into());
        }
    };
    detail.payload = HIDDEN.into();
    hide(&mut detail.result);
    hide(&mut detail.progress);
    detail.checkpoint = None;
    for effect in &mut detail.effects {
        hide(&mut effect.value);
        if let Some(undo) = &mut effect.compensation {
            undo.payload = HIDDEN.into();
        }
    }
}

/// What an act of force is done to, and why; `None`: it is none.
fn force(act: RequestedAct, call: &CallContext, ask: &StoreRequest) -> Option<Force> {
    let by = |target: String, by: &Owner| Some(Force { target, reason: Some(format!("by {by}")) });
    match ask {
        _ if act.kind != OperationKind::Force => None,
        StoreRequest::Revoke { request: RevokeLeasesRequest { target, by, reason }, .. } => {
            let target = match target {
                RevokeTarget::Key { key, only_token: None } => format!("key {key}"),
                RevokeTarget::Key { key, only_token: Some(token) } => format!("key {key}, token {token}"),
                RevokeTarget::Task(task) => format!("task {task}"),
                RevokeTarget::Owner(owner) => format!("owner {owner}"),
                RevokeTarget::Prefix(prefix) => format!("keys that start with {prefix}"),
                RevokeTarget::TaskPrefix(task) => format!("task {task} and those below it"),
            };
            Some(Force { target, reason: Some(format!("{reason} (by {by})")) })
        }
        StoreRequest::Advance { by: who, increment } => {
            by(format!("every lease; counters raised by {increment}"), who)
        }
        StoreRequest::Quota(request) => {
            let whose = if request.all_namespaces { "every namespace" } else { call.namespace.as_str() };
            let by = request.by.as_ref().map_or("nobody", Owner::as_str);
            let set = request.quota.unwrap_or_default();
            Some(Force { target: format!("{whose}: {set:?}"), reason: Some(format!("by {by}")) })
        }
        StoreRequest::Reopen { by: who } => by("every namespace, before its time".to_owned(), who),
        StoreRequest::Job(job) => match job {
            JobRequest::Change(request) => (!request.dry_run).then(|| changing(request)),
            JobRequest::SetQueueMode(order) => by(format!("queue {}", order.queue), &order.by),
            JobRequest::DeleteQueue { queue, by: who } => by(format!("queue {queue}"), who),
            JobRequest::SetSchedule(spec) => by(
                format!("schedule {}: {} {} into {}", spec.name, spec.cron, spec.time_zone, spec.queue),
                &spec.by,
            ),
            JobRequest::DeleteSchedule { name, by: who } => by(format!("schedule {name}"), who),
            JobRequest::ResolveEffect(request) => {
                let happened = match &request.resolution {
                    EffectResolution::Happened { .. } => "it happened",
                    EffectResolution::DidNotHappen {} => "it did not happen",
                };
                by(format!("job {}, effect {}: {happened}", request.job_id, request.effect), &request.by)
            }
            _ => Some(Force::default()),
        },
        _ => Some(Force::default()),
    }
}

/// What a change of several jobs is done to, and why.
fn changing(request: &ChangeJobsRequest) -> Force {
    let target = match &request.selector {
        JobSelector::Ids { job_ids: ids } => {
            let named: Vec<String> = ids.iter().take(8).map(ToString::to_string).collect();
            let more = ids.len().saturating_sub(named.len());
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{}{more}", named.join(", "))
        }
        JobSelector::Filter { filter } => format!("jobs that match {filter:?}"),
        JobSelector::All {} => "every job".to_owned(),
    };
    let reason = match &request.action {
        JobAction::Cancel { reason: Some(reason), .. }
        | JobAction::Complete { reason, .. }
        | JobAction::Fail { reason } => reason.to_string(),
        _ => "no reason given".to_owned(),
    };
    Force { target, reason: Some(format!("{reason} (by {})", request.by)) }
}

/// What came of an act of force: an answer can be that nothing was done.
fn outcome(answer: &StoreResponse) -> AuditOutcome {
    let done = match answer {
        StoreResponse::Revoked { ended, .. } => !ended.is_empty(),
        StoreResponse::Job(JobResponse::Deleted(deleted)) => *deleted,
        StoreResponse::Job(JobResponse::ResolvedEffect(resolved)) => resolved.is_ok(),
        StoreResponse::Job(JobResponse::Changed(changed)) => return acted(changed),
        _ => true,
    };
    if done { AuditOutcome::Done } else { AuditOutcome::Failed }
}

/// What came of an act on several jobs.
fn acted(acted: &ChangeJobBatchResponse) -> AuditOutcome {
    let refused = acted.results.iter().filter(|item| item.result.is_err()).count();
    match acted.results.len() - refused {
        0 => AuditOutcome::Failed,
        _ if refused > 0 => AuditOutcome::Partial,
        _ => AuditOutcome::Done,
    }
}

/// What stands in place of what a caller may not see.
const HIDDEN: &str = "\"hidden: this needs a token with the scope job:payload\"";

/// Whether an entry of the ledger has the store enqueue a job, should its effect have to be undone.
fn makes_a_job(entry: &AttemptLedgerEntry) -> bool {
    matches!(entry.entry, LedgerEntry::Record { compensation: Some(_), .. })
}

/// Of each entry of the ledger, whether it asks for an effect to begin.
fn effects_begun(ask: &StoreRequest) -> Vec<bool> {
    match ask {
        StoreRequest::Job(JobRequest::WriteEffects(entries)) => entries
            .iter()
            .map(|entry| matches!(entry.entry, LedgerEntry::Begin { .. }))
            .collect(),
        _ => Vec::new(),
    }
}

fn is_forged(refusal: &JobRefusal) -> bool {
    matches!(refusal, JobRefusal::WrongHoldId { .. })
}
