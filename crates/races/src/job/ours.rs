//! Fencehold's own jobs: every call is one message, because check and write are one step.

use async_trait::async_trait;
use fencehold_contract::StoreError;
use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, ChangeJobsRequest, ClaimJobsRequest, JobAction, JobDetail,
    JobSelector, JobStore, LedgerEntry, LedgerResponse, NewJob, Report,
};
use fencehold_core::job::{
    AttemptOutcome, AttemptRenewal, EffectName, JobKind, JobOptions, JobRefusal, QueueName, ReportedAttempt,
};
use fencehold_core::ledger::{Compensation, EffectState, idempotency_key};
use fencehold_core::ttl::GrantedTerm;
use fencehold_core::{HoldId, Owner, Token};

use super::{GrantedClaim, JobCall, JobProtocol, JobReply, SeenJob};
use crate::ours::{LOOK, RealStore};
use crate::protocol::RaceCall as _;

impl RealStore {
    fn attempt(&self, work: &GrantedClaim) -> AttemptRef {
        AttemptRef { job_id: self.names.job, hold_id: work.hold, token: Token::new(work.token) }
    }

    async fn deliver_job(&self, who: &str, act: &JobCall) -> JobReply {
        let store = self.store(who);
        let Some(jobs) = store.jobs() else { return JobReply::Other("the store keeps no jobs".to_owned()) };
        let told = match act {
            JobCall::Claim(wish) => {
                let request = ClaimJobsRequest {
                    wait_ms: wish.wait_ms,
                    ..claim(&self.names.queue, wish.hold, wish.owner.clone(), wish.ttl_ms)
                };
                jobs.claim(&self.call, request).await.map(|claimed| match claimed.jobs.first() {
                    None => JobReply::Nothing,
                    Some(job) => JobReply::Claimed(GrantedClaim {
                        hold: wish.hold,
                        owner: wish.owner.clone(),
                        token: job.token.get(),
                        waited_ms: claimed.waited_ms,
                        remaining_ms: job.remaining_ms,
                    }),
                })
            }
            JobCall::Renew(work) => {
                let renewed = jobs.renew_attempts(&self.call, vec![self.attempt(work)]).await;
                let told = |renewal: AttemptRenewal| JobReply::Renewed {
                    cancel_requested: renewal.cancel_requested,
                };
                renewed.map(|renewed| self.first(renewed.results, told))
            }
            JobCall::Complete(work, result) => {
                let result = Some(serde_json::json!(result).to_string().into());
                self.report(jobs, work, Report::Complete { result }).await
            }
            JobCall::Fail(work) => {
                let error = "no answer came".to_owned();
                self.report(jobs, work, Report::Fail { error, retry_in_ms: None, permanent: false })
                    .await
            }
            JobCall::HandBack(work) => self.report(jobs, work, Report::Release {}).await,
            JobCall::Announce(work, name, policy) => {
                let act = LedgerEntry::Begin { effect: effect(name), in_doubt_policy: *policy };
                self.enter(jobs, work, act).await
            }
            JobCall::Record(work, name) => {
                let undo = Compensation {
                    kind: kind(&format!("undo-{name}")),
                    queue: Some(self.names.undo_queue.clone()),
                    payload: "{}".into(),
                };
                let act =
                    LedgerEntry::Record { effect: effect(name), value: "1".into(), compensation: Some(undo) };
                self.enter(jobs, work, act).await
            }
            JobCall::Cancel { now } => self.cancel(jobs, who, *now).await,
            // No store sweeps on request: what arrives is a look at the job, as with leases.
            JobCall::Sweep => jobs.get_job(&self.call, self.names.job).await.map(|_| JobReply::Looked),
        };
        told.unwrap_or_else(|error| match (self.explain(&error), error) {
            (_, StoreError::OutcomeUnknown { .. }) => JobReply::Unheard,
            (says, _) => JobReply::Other(says),
        })
    }

    async fn report(
        &self,
        jobs: &dyn JobStore,
        by: &GrantedClaim,
        word: Report,
    ) -> Result<JobReply, StoreError> {
        let report = AttemptReport { attempt: self.attempt(by), report: word };
        let answers = jobs.report(&self.call, vec![report]).await?;
        Ok(self.first(answers, |ReportedAttempt { state, late, .. }| JobReply::Stands { state, late }))
    }

    async fn enter(
        &self,
        jobs: &dyn JobStore,
        work: &GrantedClaim,
        act: LedgerEntry,
    ) -> Result<JobReply, StoreError> {
        let entry = AttemptLedgerEntry { attempt: self.attempt(work), entry: act };
        let answers = jobs.write_effects(&self.call, vec![entry]).await?;
        Ok(self.first(answers, |answer| match answer {
            LedgerResponse::Proceed {} => JobReply::Go,
            LedgerResponse::Recorded { .. } => JobReply::Recorded,
            LedgerResponse::InDoubt {} => JobReply::InDoubt,
            LedgerResponse::Withdrawn {} => JobReply::Other("Withdrawn".to_owned()),
        }))
    }

    async fn cancel(&self, jobs: &dyn JobStore, who: &str, now: bool) -> Result<JobReply, StoreError> {
        let by = Owner::new(who).map_err(StoreError::from)?;
        let action = JobAction::Cancel { reason: None, force: now };
        let selector = JobSelector::Ids { job_ids: vec![self.names.job] };
        let request = ChangeJobsRequest::new(selector, action, by);
        let outcomes = jobs.change_jobs(&self.call, request).await?.results;
        let outcomes = outcomes.into_iter().map(|item| item.result).collect();
        Ok(self.first(outcomes, |state| JobReply::Stands { state, late: false }))
    }

    fn first<T>(&self, answers: Vec<Result<T, JobRefusal>>, told: impl FnOnce(T) -> JobReply) -> JobReply {
        match answers.into_iter().next() {
            Some(Ok(answer)) => told(answer),
            Some(Err(JobRefusal::Stale { current_token: current, .. })) => {
                JobReply::Stale { current: current.get() }
            }
            Some(Err(JobRefusal::Over { outcome: how, .. })) => JobReply::Over { how },
            Some(Err(JobRefusal::Finished { state })) => JobReply::Finished { state },
            Some(Err(refusal)) => JobReply::Other(self.explain_refusal(&refusal)),
            None => JobReply::Other("no answer for one item".to_owned()),
        }
    }

    /// The same as [`RealStore::explain`], of one item.
    pub(super) fn explain_refusal(&self, refusal: &JobRefusal) -> String {
        let lacks_room = self.live && matches!(refusal, JobRefusal::LimitReached { .. });
        if lacks_room || matches!(refusal, JobRefusal::BadInput(_)) {
            self.gate.trace.cannot_arrange(refusal);
        }
        refusal.to_string()
    }
}

#[async_trait]
impl JobProtocol for RealStore {
    async fn put(&self, terms: JobOptions) -> Result<(), String> {
        let store = self.test_store.store();
        let jobs = store.jobs().ok_or("it keeps no jobs")?;
        let (id, queue) = (self.names.job, self.names.queue.clone());
        let job = NewJob { options: terms, ..NewJob::new(id, queue, kind("work"), "{}") };
        let answers = jobs
            .enqueue(&self.call, vec![job])
            .await
            .map_err(|error| self.explain(&error))?;
        match answers.into_iter().next() {
            Some(Ok(_)) => Ok(()),
            Some(Err(refusal)) => Err(self.explain_refusal(&refusal)),
            None => Err("no answer for one job".to_owned()),
        }
    }

    async fn perform(&self, who: &str, act: &JobCall) -> JobReply {
        let shown = if matches!(act, JobCall::Sweep) { LOOK } else { act.message() };
        let carried = self.gate.carry(who, act.message(), shown, || self.deliver_job(who, act));
        carried.await.unwrap_or(JobReply::Unheard)
    }

    async fn in_line(&self) -> usize {
        let store = self.test_store.other();
        let Some(jobs) = store.jobs() else { return 0 };
        let queues = jobs.list_queues(&self.call).await.unwrap_or_default().queues;
        let queue = queues.into_iter().find(|view| view.name == self.names.queue);
        queue.map_or(0, |view| usize::try_from(view.waiting_claim_count).unwrap_or(usize::MAX))
    }

    fn relies_for_ms(&self, claim: &GrantedClaim) -> u64 {
        GrantedTerm::new(0, claim.waited_ms, 0, claim.remaining_ms).lost_at_ms()
    }

    fn idempotency_key(&self, name: &str) -> Option<String> {
        Some(idempotency_key(self.names.job, &effect(name)))
    }

    async fn undo_next(&self, who: &str) -> Option<String> {
        let store = self.store(who);
        let jobs = store.jobs()?;
        let owner = Owner::new(who).ok()?;
        let undone = self.look().await.ok()?.undone.len();
        let hold = *self.undo_holds.get(undone)?;
        let request = claim(&self.names.undo_queue, hold, owner, self.test_store.ttl_ms());
        let job = jobs.claim(&self.call, request).await.ok()?.jobs.pop()?;
        let attempt = AttemptRef { job_id: job.id, hold_id: hold, token: job.token };
        let done = AttemptReport { attempt, report: Report::Complete { result: None } };
        jobs.report(&self.call, vec![done]).await.ok()?.pop()?.ok()?;
        Some(job.compensates?.effect.to_string())
    }

    async fn look(&self) -> Result<SeenJob, String> {
        let store = self.test_store.other();
        let jobs = store.jobs().ok_or("it keeps no jobs")?;
        let found = jobs
            .get_job(&self.call, self.names.job)
            .await
            .map_err(|error| self.explain(&error))?;
        let JobDetail { job, result, attempts, effects, .. } = found.ok_or("the job is gone")?;
        let completed =
            |how: AttemptOutcome| matches!(how, AttemptOutcome::Completed | AttemptOutcome::CompletedLate);
        let text = |json: Box<str>| serde_json::from_str(&json).unwrap_or_else(|_| json.to_string());
        Ok(SeenJob {
            state: job.state,
            remaining_ms: job.runner.as_ref().map_or(0, |runner| runner.remaining_ms),
            worker: job.runner.map(|runner| runner.owner.to_string()),
            result: result.map(text),
            completions: attempts.iter().filter(|attempt| completed(attempt.outcome)).count(),
            undone: effects
                .into_iter()
                .filter(|effect| matches!(effect.state, EffectState::Compensated))
                .map(|effect| effect.name.to_string())
                .collect(),
        })
    }
}

/// One job, without waiting.
pub(super) fn claim(queue: &QueueName, hold: HoldId, owner: Owner, ttl_ms: u64) -> ClaimJobsRequest {
    let queues = vec![(queue.clone(), 1)];
    ClaimJobsRequest { queues, limit: 1, hold_id: hold, owner, ttl_ms, wait_ms: 0, waited_before_ms: 0 }
}

pub(super) fn kind(name: &str) -> JobKind {
    JobKind::new(name).expect("a short name without control characters")
}

pub(super) fn effect(name: &str) -> EffectName {
    EffectName::new(name).expect("a short name without control characters")
}
