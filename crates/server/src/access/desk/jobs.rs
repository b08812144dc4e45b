//! Jobs at the desk.

use std::sync::Arc;

use async_trait::async_trait;
use fencehold_contract::http::{Operation as _, Scope, op};
use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, BegunOperation,
    ChangeJobBatchResponse, ChangeJobsRequest, ClaimJobsRequest, ClaimedJobs, EffectPage, EffectResolution,
    EnqueuedJob, JobAction, JobDetail, JobPage, JobSelector, LedgerEntry, LedgerResponse, ListEffectsRequest,
    ListJobsRequest, NewJob, QueueMode, QueueView, RenewAttemptBatchResponse, Report, ResolveEffectRequest,
    ScheduleSpec, ScheduleView, SetQueueModeRequest, WaitRequest,
};
use fencehold_contract::{CallContext, JobStore, StoreError};
use fencehold_core::job::{JobId, QueueName, Refusal, ReportedAttempt, ScheduleName};
use fencehold_core::{Owner, Token};

use super::{Act, Desk, Force, Telling, Took};
use crate::audit::Outcome;
use crate::observe::{Kind, Span, SpanKind, about, attempts, enqueuing, working};

const ENQUEUE: Act = Act::new(Kind::Enqueue, op::EnqueueJobBatch::SPEC);
const CLAIM: Act = Act::new(Kind::Claim, op::ClaimJobs::SPEC);
const RENEW: Act = Act::new(Kind::Renew, op::RenewAttemptBatch::SPEC).renewing();
const REPORT: Act = Act::new(Kind::Report, op::ReportAttemptBatch::SPEC);
const LEDGER: Act = Act::new(Kind::Report, op::WriteEffectBatch::SPEC);
const LOOK: Act = Act::new(Kind::Look, op::GetJob::SPEC);
const CANCEL: Act = Act::new(Kind::Force, op::CancelJob::SPEC);
const RETRY: Act = Act::new(Kind::Force, op::RetryJob::SPEC);
const DELETE: Act = Act::new(Kind::Force, op::DeleteJob::SPEC);
const PAUSE: Act = Act::new(Kind::Force, op::PauseQueue::SPEC);
const RESUME: Act = Act::new(Kind::Force, op::ResumeQueue::SPEC);
const DRAIN: Act = Act::new(Kind::Force, op::DrainQueue::SPEC);
const UNQUEUE: Act = Act::new(Kind::Force, op::DeleteQueue::SPEC);
const SCHEDULE: Act = Act::new(Kind::Force, op::SetSchedule::SPEC);
const UNSCHEDULE: Act = Act::new(Kind::Force, op::DeleteSchedule::SPEC);
const BEGIN: Act = Act::new(Kind::Claim, op::BeginOperation::SPEC);
const RESOLVE: Act = Act::new(Kind::Force, op::ResolveEffect::SPEC);

impl Desk {
    /// The jobs of the house's store, or that there are none.
    fn kept_jobs(&self) -> Result<&dyn JobStore, StoreError> {
        let unsupported = || StoreError::Unsupported {
            store: self.server.store.capabilities().store.to_owned(),
            message: "keep jobs".to_owned(),
        };
        self.server.store.jobs().ok_or_else(unsupported)
    }

    /// A job as this caller may see it: those who only look need a scope of their own for what it is about.
    fn as_seen(&self, mut detail: JobDetail) -> JobDetail {
        if self.caller.sees_payloads() {
            return detail;
        }
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
        detail
    }

    /// Whether this caller may put jobs into queues too. What is recorded for later is checked when it is recorded: later
    /// nobody asks.
    fn may_enqueue(&self, act: Act, call: &CallContext, why: &str) -> Result<(), StoreError> {
        if self.caller.scopes.allow(Scope::JobEnqueue) {
            return Ok(());
        }
        let needs = op::EnqueueJobBatch::SPEC.scopes;
        let denied = self.allow(Act { needs, ..act }, &call.namespace, None);
        denied.map_err(|error| match error {
            StoreError::Forbidden { message: needs } => {
                StoreError::Forbidden { message: format!("{why}: {needs}") }
            }
            error => error,
        })
    }
}

#[async_trait]
impl JobStore for Desk {
    async fn enqueue(
        &self,
        call: &CallContext,
        mut jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<EnqueuedJob, Refusal>>, StoreError> {
        let kept = self.kept_jobs()?;
        let act = ENQUEUE.of(jobs.len());
        let told = self.place_in_trace(call, &mut jobs);
        let (outcome, took) = self.through(act, call, None, kept.enqueue(call, jobs)).await;
        if let Ok(answers) = &outcome {
            let existed = answers.iter().flatten().filter(|enqueued| enqueued.existed).count();
            self.server.metrics.dedup_hits.add(existed as u64);
            for (span, answer) in told.into_iter().zip(answers) {
                if matches!(answer, Ok(enqueued) if !enqueued.existed) {
                    let Took { start_wall_us, end_wall_us } = took;
                    self.server.tracer.record(Span { start_wall_us, end_wall_us, ..span });
                }
            }
        }
        self.tell(act, call, took, &outcome, || self.plain());
        outcome
    }

    async fn claim(&self, call: &CallContext, request: ClaimJobsRequest) -> Result<ClaimedJobs, StoreError> {
        let act = CLAIM.waiting(request.wait_ms);
        let (mut outcome, took) = self.through(act, call, None, self.kept_jobs()?.claim(call, request)).await;
        let mut attempts = Vec::new();
        if let (Ok(claimed), true) = (&mut outcome, self.server.tracer.is_on()) {
            for job in &mut claimed.jobs {
                if let Some(attempt) = working(job) {
                    attempts.push(attempt);
                    job.traceparent = Some(attempt.to_string().into());
                }
            }
        }
        self.tell(act, call, took, &outcome, || Telling { links: attempts, ..self.plain() });
        outcome
    }

    async fn renew_attempts(
        &self,
        call: &CallContext,
        attempts: Vec<AttemptRef>,
    ) -> Result<RenewAttemptBatchResponse, StoreError> {
        let count = attempts.len();
        let outcome = self
            .pass(RENEW.of(count), call, self.kept_jobs()?.renew_attempts(call, attempts))
            .await;
        let answers = outcome.as_ref().map(|renewed| renewed.results.as_slice());
        self.server.metrics.renewals(count, answers, is_forged);
        outcome
    }

    async fn report(
        &self,
        call: &CallContext,
        reports: Vec<AttemptReport>,
    ) -> Result<Vec<Result<ReportedAttempt, Refusal>>, StoreError> {
        let act = REPORT.of(reports.len());
        let ending = self.ending(&reports);
        let (outcome, took) = self.through(act, call, None, self.kept_jobs()?.report(call, reports)).await;
        self.tell(act, call, took, &outcome, || self.plain());
        if let Ok(answers) = &outcome {
            self.server.metrics.forged(answers, is_forged);
            let ended: Vec<(JobId, Token)> = ending
                .into_iter()
                .zip(answers)
                .filter_map(|(attempt, answer)| attempt.filter(|_| answer.is_ok()))
                .collect();
            self.tell_of_attempts(call, ended);
        }
        outcome
    }

    async fn write_effects(
        &self,
        call: &CallContext,
        entries: Vec<AttemptLedgerEntry>,
    ) -> Result<Vec<Result<LedgerResponse, Refusal>>, StoreError> {
        let act = LEDGER.of(entries.len());
        if entries.iter().any(makes_a_job) {
            self.may_enqueue(act, call, "an effect with an undo job enqueues it")?;
        }
        self.pass(act, call, self.kept_jobs()?.write_effects(call, entries)).await
    }

    async fn get_job(&self, call: &CallContext, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        let found = self.pass(LOOK, call, self.kept_jobs()?.get_job(call, id)).await?;
        Ok(found.map(|detail| self.as_seen(detail)))
    }

    async fn wait_for_job(
        &self,
        call: &CallContext,
        request: WaitRequest,
    ) -> Result<Option<JobDetail>, StoreError> {
        let act = LOOK.waiting(request.wait_ms);
        let found = self.pass(act, call, self.kept_jobs()?.wait_for_job(call, request)).await?;
        Ok(found.map(|detail| self.as_seen(detail)))
    }

    async fn list_jobs(&self, call: &CallContext, request: ListJobsRequest) -> Result<JobPage, StoreError> {
        if request.filter.payload_contains.is_some() && !self.caller.sees_payloads() {
            let why = "searching payloads needs a token with the scope job:payload".to_owned();
            return Err(StoreError::Forbidden { message: why });
        }
        self.pass(LOOK, call, self.kept_jobs()?.list_jobs(call, request)).await
    }

    async fn change_jobs(
        &self,
        call: &CallContext,
        request: ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, StoreError> {
        let kept = self.kept_jobs()?;
        let (act, reason) = match &request.action {
            JobAction::Cancel { reason, .. } => (CANCEL, reason.as_ref().map(ToString::to_string)),
            JobAction::Retry => (RETRY, None),
            JobAction::Delete { .. } => (DELETE, None),
        };
        let (target, count) = match &request.selector {
            JobSelector::Ids { job_ids: ids } => {
                let named: Vec<String> = ids.iter().take(8).map(ToString::to_string).collect();
                let more = ids.len().saturating_sub(named.len());
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                (format!("{}{more}", named.join(", ")), ids.len())
            }
            JobSelector::Filter { filter } => (format!("jobs that match {filter:?}"), request.limit),
            JobSelector::All {} => ("every job".to_owned(), request.limit),
        };
        if request.dry_run {
            return self.pass(act.of(count), call, kept.change_jobs(call, request)).await;
        }
        let reason = Some(format!("{} (by {})", reason.as_deref().unwrap_or("no reason given"), request.by));
        self.force(act.of(count), call, Force { target, reason }, acted, kept.change_jobs(call, request))
            .await
    }

    async fn list_queues(&self, call: &CallContext) -> Result<Vec<QueueView>, StoreError> {
        self.pass(LOOK, call, self.kept_jobs()?.list_queues(call)).await
    }

    async fn set_queue_mode(
        &self,
        call: &CallContext,
        order: SetQueueModeRequest,
    ) -> Result<QueueView, StoreError> {
        let act = match order.mode {
            QueueMode::Open => RESUME,
            QueueMode::Paused => PAUSE,
            QueueMode::Draining => DRAIN,
        };
        let target = format!("queue {}", order.queue);
        let reason = Some(format!("by {}", order.by));
        let work = self.kept_jobs()?.set_queue_mode(call, order);
        self.force(act, call, Force { target, reason }, |_| Outcome::Done, work).await
    }

    async fn delete_queue(
        &self,
        call: &CallContext,
        queue: QueueName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        let force = Force { target: format!("queue {queue}"), reason: Some(format!("by {by}")) };
        let judge = |removed: &bool| if *removed { Outcome::Done } else { Outcome::Failed };
        self.force(UNQUEUE, call, force, judge, self.kept_jobs()?.delete_queue(call, queue, by))
            .await
    }

    async fn list_schedules(&self, call: &CallContext) -> Result<Vec<ScheduleView>, StoreError> {
        let mut schedules = self.pass(LOOK, call, self.kept_jobs()?.list_schedules(call)).await?;
        if !self.caller.sees_payloads() {
            for schedule in &mut schedules {
                schedule.spec.payload = HIDDEN.into();
            }
        }
        Ok(schedules)
    }

    async fn set_schedule(&self, call: &CallContext, spec: ScheduleSpec) -> Result<ScheduleView, StoreError> {
        self.may_enqueue(SCHEDULE, call, "a schedule enqueues jobs")?;
        let target = format!("schedule {}: {} {} into {}", spec.name, spec.cron, spec.time_zone, spec.queue);
        let reason = Some(format!("by {}", spec.by));
        let work = self.kept_jobs()?.set_schedule(call, spec);
        self.force(SCHEDULE, call, Force { target, reason }, |_| Outcome::Done, work)
            .await
    }

    async fn delete_schedule(
        &self,
        call: &CallContext,
        name: ScheduleName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        let force = Force { target: format!("schedule {name}"), reason: Some(format!("by {by}")) };
        let judge = |removed: &bool| if *removed { Outcome::Done } else { Outcome::Failed };
        self.force(UNSCHEDULE, call, force, judge, self.kept_jobs()?.delete_schedule(call, name, by))
            .await
    }

    async fn begin_operation(
        &self,
        call: &CallContext,
        request: BeginOperationRequest,
    ) -> Result<Result<BegunOperation, Refusal>, StoreError> {
        self.pass(BEGIN.waiting(0), call, self.kept_jobs()?.begin_operation(call, request))
            .await
    }

    async fn list_effects(
        &self,
        call: &CallContext,
        request: ListEffectsRequest,
    ) -> Result<EffectPage, StoreError> {
        self.pass(LOOK, call, self.kept_jobs()?.list_effects(call, request)).await
    }

    async fn resolve_effect(
        &self,
        call: &CallContext,
        request: ResolveEffectRequest,
    ) -> Result<Result<(), Refusal>, StoreError> {
        let happened = match &request.resolution {
            EffectResolution::Happened { .. } => "it happened",
            EffectResolution::DidNotHappen {} => "it did not happen",
        };
        let force = Force {
            target: format!("job {}, effect {}: {happened}", request.job_id, request.effect),
            reason: Some(format!("by {}", request.by)),
        };
        let judge = |said: &Result<(), Refusal>| if said.is_ok() { Outcome::Done } else { Outcome::Failed };
        self.force(RESOLVE, call, force, judge, self.kept_jobs()?.resolve_effect(call, request))
            .await
    }
}

/// What came of an act on several jobs.
fn acted(acted: &ChangeJobBatchResponse) -> Outcome {
    let refused = acted.results.iter().filter(|item| item.result.is_err()).count();
    match acted.results.len() - refused {
        0 => Outcome::Failed,
        _ if refused > 0 => Outcome::Partial,
        _ => Outcome::Done,
    }
}

/// What stands in place of what a caller may not see.
const HIDDEN: &str = "\"hidden: this needs a token with the scope job:payload\"";

/// Whether an entry of the ledger has the store enqueue a job, should its effect have to be undone.
fn makes_a_job(entry: &AttemptLedgerEntry) -> bool {
    matches!(entry.entry, LedgerEntry::Record { compensation: Some(_), .. })
}

fn is_forged(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::WrongHoldId { .. })
}

/// What traces get of jobs.
impl Desk {
    /// Gives every job its place in a trace, which it carries from here to its end, and says what is to be reported of it once
    /// it is in its queue.
    fn place_in_trace(&self, call: &CallContext, jobs: &mut [NewJob]) -> Vec<Span> {
        if !self.server.tracer.is_on() {
            return Vec::new();
        }
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

    /// For each report, the attempt that it ends, if it does.
    fn ending(&self, reports: &[AttemptReport]) -> Vec<Option<(JobId, Token)>> {
        if !self.server.tracer.is_on() {
            return Vec::new();
        }
        let ends = |word: &Report| !matches!(word, Report::Checkpoint { .. } | Report::Progress { .. });
        let attempt = |report: &AttemptReport| {
            ends(&report.report).then_some((report.attempt.job_id, report.attempt.token))
        };
        reports.iter().map(attempt).collect()
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
}
