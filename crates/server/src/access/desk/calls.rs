//! Calls of the contract at the desk: what each needs, what of it is audited, and what of its answer this caller may see.

use fencehold_contract::http::{Operation as _, Scope, op};
use fencehold_contract::job::{
    AttemptLedgerEntry, ChangeJobBatchResponse, ChangeJobsRequest, EffectResolution, JobAction, JobDetail,
    JobSelector, LedgerEntry,
};
use fencehold_contract::measure::Measures;
use fencehold_contract::operation::{Answer, Ask, JobAnswer, JobAsk, Route, perform};
use fencehold_contract::{
    CallContext, Capabilities, RevokeLeasesRequest, RevokeTarget, StoreError, StoreStatus,
};
use fencehold_core::job::Refusal as JobRefusal;
use fencehold_core::{Owner, Refusal};

use super::{Act, Desk, Force, Forced};
use crate::audit::Outcome;
use crate::observe::{Kind, is_wrong_hold};

impl Route for Desk {
    async fn route(&self, call: &CallContext, mut ask: Ask) -> Result<Answer, StoreError> {
        let act = self.act(&ask);
        self.allow_contents(act, call, &ask)?;
        let forced = force(act, call, &ask).map(|force| Forced { force, judge: outcome });
        let traced = self.before(call, &mut ask);
        let work = Box::pin(perform(&*self.server.store, call, ask));
        let (mut outcome, took) = self.through(act, call, forced, work).await;
        self.count(act, &outcome);
        self.after(act, call, took, traced, &mut outcome);
        outcome.map(|answer| self.as_seen(answer))
    }

    fn can(&self) -> Capabilities {
        self.server.store.capabilities()
    }

    fn measured(&self) -> Option<&Measures> {
        self.server.store.metrics()
    }

    /// The store is the server's, and goes on.
    async fn shut(&self) {}
}

impl Desk {
    /// What a call is. One that is not named here reads, or is an act of force.
    fn act(&self, ask: &Ask) -> Act {
        let act = |kind| Act::new(kind, self.needs);
        match ask {
            Ask::Acquire(request) => act(Kind::Acquire).of(request.any_of.len()).waiting(request.wait_ms),
            Ask::Renew(holds) => act(Kind::Renew).of(holds.len()).renewing(),
            Ask::Release(holds) => act(Kind::Release).of(holds.len()),
            Ask::Events(request) => act(Kind::Look).waiting(request.wait_ms),
            Ask::Quota(request) if request.quota.is_none() => act(Kind::Look).everywhere(),
            Ask::Quota(_) | Ask::Advance { .. } | Ask::Reopen { .. } => act(Kind::Force).everywhere(),
            Ask::Job(JobAsk::Enqueue(jobs)) => act(Kind::Enqueue).of(jobs.len()),
            Ask::Job(JobAsk::Claim(request)) => act(Kind::Claim).waiting(request.wait_ms),
            Ask::Job(JobAsk::BeginOperation(_)) => act(Kind::Claim).waiting(0),
            Ask::Job(JobAsk::Renew(attempts)) => act(Kind::Renew).of(attempts.len()).renewing(),
            Ask::Job(JobAsk::Report(reports)) => act(Kind::Report).of(reports.len()),
            Ask::Job(JobAsk::WriteEffects(entries)) => act(Kind::Report).of(entries.len()),
            Ask::Job(JobAsk::WaitFor(request)) => act(Kind::Look).waiting(request.wait_ms),
            Ask::Job(JobAsk::Change(request)) => act(Kind::Force).of(match &request.selector {
                JobSelector::Ids { job_ids } => job_ids.len(),
                JobSelector::Filter { .. } | JobSelector::All {} => request.limit,
            }),
            ask if ask.only_reads() => act(Kind::Look),
            _ => act(Kind::Force),
        }
    }

    /// Whether this caller may ask for what is in the call, too.
    fn allow_contents(&self, act: Act, call: &CallContext, ask: &Ask) -> Result<(), StoreError> {
        match ask {
            Ask::Job(JobAsk::WriteEffects(entries)) if entries.iter().any(makes_a_job) => {
                self.may_enqueue(act, call, "an effect with an undo job enqueues it")
            }
            Ask::Job(JobAsk::SetSchedule(_)) => self.may_enqueue(act, call, "a schedule enqueues jobs"),
            Ask::Job(JobAsk::List(request))
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

    fn count(&self, act: Act, outcome: &Result<Answer, StoreError>) {
        let metrics = &self.server.metrics;
        match outcome {
            Ok(Answer::Acquired(acquired)) => {
                metrics.waited_ms.record(acquired.waited_ms);
                if acquired.waited_ms > 0 {
                    metrics.contended.add_one();
                }
            }
            Err(StoreError::Refused { refusal: Refusal::Held { .. }, .. }) if act.kind == Kind::Acquire => {
                metrics.contended.add_one();
            }
            Ok(Answer::Renewed(renewed)) => metrics.renewals(&renewed.results, is_wrong_hold),
            Ok(Answer::Job(JobAnswer::Renewed(renewed))) => {
                metrics.renewals(&renewed.results, is_forged);
            }
            Err(_) if act.kind == Kind::Renew => metrics.renewals_failed.add(act.cost as u64),
            Ok(Answer::Released(results)) => metrics.forged(results, is_wrong_hold),
            Ok(Answer::Job(JobAnswer::Reported(results))) => metrics.forged(results, is_forged),
            Ok(Answer::Job(JobAnswer::Enqueued(results))) => {
                let existed = results.iter().flatten().filter(|enqueued| enqueued.existed).count();
                metrics.dedup_hits.add(existed as u64);
            }
            _ => {}
        }
    }

    /// An answer as this caller may see it.
    fn as_seen(&self, mut answer: Answer) -> Answer {
        match &mut answer {
            Answer::Status(status) if !self.caller.is_operator() => hide_counts(status),
            Answer::Job(JobAnswer::Job(Some(detail))) if !self.caller.sees_payloads() => {
                hide_payloads(detail);
            }
            Answer::Job(JobAnswer::Schedules(schedules)) if !self.caller.sees_payloads() => {
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
    (
        status.key_count,
        status.held_count,
        status.waiter_count,
        status.job_count,
        status.unreadable_row_count,
    ) = (0, 0, 0, 0, 0);
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
fn force(act: Act, call: &CallContext, ask: &Ask) -> Option<Force> {
    let by = |target: String, by: &Owner| Some(Force { target, reason: Some(format!("by {by}")) });
    match ask {
        _ if act.kind != Kind::Force => None,
        Ask::Revoke { request: RevokeLeasesRequest { target, by, reason }, .. } => {
            let target = match target {
                RevokeTarget::Key { key, only_token: None } => format!("key {key}"),
                RevokeTarget::Key { key, only_token: Some(token) } => format!("key {key}, token {token}"),
                RevokeTarget::Task(task) => format!("task {task}"),
                RevokeTarget::Owner(owner) => format!("owner {owner}"),
                RevokeTarget::Prefix(prefix) => format!("keys that start with {prefix}"),
            };
            Some(Force { target, reason: Some(format!("{reason} (by {by})")) })
        }
        Ask::Advance { by: who, increment } => {
            by(format!("every lease; counters raised by {increment}"), who)
        }
        Ask::Quota(request) => {
            let whose = if request.all_namespaces { "every namespace" } else { call.namespace.as_str() };
            let by = request.by.as_ref().map_or("nobody", Owner::as_str);
            let set = request.quota.unwrap_or_default();
            Some(Force { target: format!("{whose}: {set:?}"), reason: Some(format!("by {by}")) })
        }
        Ask::Reopen { by: who } => by("every namespace, before its time".to_owned(), who),
        Ask::Job(JobAsk::Change(request)) => (!request.dry_run).then(|| changing(request)),
        Ask::Job(JobAsk::SetQueueMode(order)) => by(format!("queue {}", order.queue), &order.by),
        Ask::Job(JobAsk::DeleteQueue { queue, by: who }) => by(format!("queue {queue}"), who),
        Ask::Job(JobAsk::SetSchedule(spec)) => by(
            format!("schedule {}: {} {} into {}", spec.name, spec.cron, spec.time_zone, spec.queue),
            &spec.by,
        ),
        Ask::Job(JobAsk::DeleteSchedule { name, by: who }) => by(format!("schedule {name}"), who),
        Ask::Job(JobAsk::ResolveEffect(request)) => {
            let happened = match &request.resolution {
                EffectResolution::Happened { .. } => "it happened",
                EffectResolution::DidNotHappen {} => "it did not happen",
            };
            by(format!("job {}, effect {}: {happened}", request.job_id, request.effect), &request.by)
        }
        _ => Some(Force { target: String::new(), reason: None }),
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
        JobAction::Cancel { reason: Some(reason), .. } => reason.to_string(),
        _ => "no reason given".to_owned(),
    };
    Force { target, reason: Some(format!("{reason} (by {})", request.by)) }
}

/// What came of an act of force: an answer can be that nothing was done.
fn outcome(answer: &Answer) -> Outcome {
    let done = match answer {
        Answer::Revoked { ended, .. } => !ended.is_empty(),
        Answer::Job(JobAnswer::Deleted(deleted)) => *deleted,
        Answer::Job(JobAnswer::ResolvedEffect(resolved)) => resolved.is_ok(),
        Answer::Job(JobAnswer::Changed(changed)) => return acted(changed),
        _ => true,
    };
    if done { Outcome::Done } else { Outcome::Failed }
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

fn is_forged(refusal: &JobRefusal) -> bool {
    matches!(refusal, JobRefusal::WrongHoldId { .. })
}
