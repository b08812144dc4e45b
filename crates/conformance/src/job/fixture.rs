//! What the cases of the job contract stand on: its calls, blocking and short, by workers with names.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, AttemptView, ChangeJobBatchResponse, ChangeJobsRequest,
    ClaimJobsRequest, ClaimedJob, ClaimedJobs, EffectView, EnqueuedJob, JobAction, JobDetail, JobFilter,
    JobSelector, JobStore, JobView, LedgerEntry, LedgerResponse, ListEffectsRequest, ListJobsRequest, NewJob,
    QueueMode, QueueView, Report, SetQueueModeRequest, Unique, WaitRequest,
};
use fencehold_contract::{BlockedWrite, LeaseStore, StoreError};
use fencehold_core::job::{
    AttemptOutcome, AttemptRenewal, EffectName, JobId, JobKind, JobOptions, JobRefusal, JobState, QueueName,
    ReportedAttempt, UniqueKey,
};
use fencehold_core::ledger::{Compensation, InDoubtPolicy};
use fencehold_core::limits::{CRASH_SPREAD_MS, WAIT_MS_MAX};
use fencehold_core::retry::RetryPolicy;
use fencehold_core::{BlockedAction, EventData, HoldId, Key, Reason, Token};

use crate::concurrent::PendingCall;
use crate::fixture::{Fixture, fresh_hold, owner, until};

/// The delay after every failure of a job on [`terms`].
pub(super) const RETRY_MS: u64 = 10_000;

/// The answers to an effect that is announced: it may go ahead, or a person must look first.
pub(super) const PROCEED: Result<LedgerResponse, JobRefusal> = Ok(LedgerResponse::Proceed {});
pub(super) const IN_DOUBT: Result<LedgerResponse, JobRefusal> = Ok(LedgerResponse::InDoubt {});

/// The jobs of a store that has them.
pub(super) fn jobs_of(store: &dyn LeaseStore) -> &dyn JobStore {
    store.jobs().expect("a store with jobs")
}

/// A claimed job, as its worker knows it.
#[derive(Clone, Debug)]
pub(super) struct ClaimedWork {
    pub(super) hold: HoldId,
    pub(super) job: ClaimedJob,
}

impl ClaimedWork {
    pub(super) fn attempt(&self) -> AttemptRef {
        AttemptRef { job_id: self.job.id, hold_id: self.hold, token: self.job.token }
    }
}

impl Fixture {
    /// A job to be: on its own payload, ready now.
    #[expect(clippy::unused_self, reason = "reads like the rest of what a case does")]
    pub(super) fn job_for(&self, queue_name: &str) -> NewJob {
        let (id, number) = fresh_id();
        NewJob::new(id, queue(queue_name), kind("work"), format!("{{\"number\":{number}}}"))
    }

    pub(super) fn enqueue_all(&self, jobs: Vec<NewJob>) -> Vec<Result<EnqueuedJob, JobRefusal>> {
        self.enqueue_raw(jobs).expect("jobs that are taken")
    }

    pub(super) fn enqueue_raw(
        &self,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<EnqueuedJob, JobRefusal>>, StoreError> {
        self.drive(jobs_of(&*self.test_store.store()).enqueue(&self.call, jobs))
    }

    pub(super) fn enqueue(&self, job: NewJob) -> Result<EnqueuedJob, JobRefusal> {
        only(self.enqueue_all(vec![job]))
    }

    /// Enqueues a job that must be new.
    pub(super) fn put_with(&self, job: NewJob) -> JobId {
        let id = job.id;
        assert_eq!(self.enqueue(job), Ok(EnqueuedJob { job_id: id, existed: false }));
        id
    }

    pub(super) fn put(&self, queue_name: &str) -> JobId {
        self.put_with(self.job_for(queue_name))
    }

    pub(super) fn put_many(&self, queue_name: &str, count: usize) -> Vec<JobId> {
        let jobs: Vec<NewJob> = (0..count).map(|_| self.job_for(queue_name)).collect();
        let answers = self.enqueue_all(jobs);
        answers.into_iter().map(|answer| answer.expect("a good job").job_id).collect()
    }

    /// The terms of an ordinary claim: one job, a fresh hold id, the arena's ttl, no waiting.
    pub(super) fn claim_for(&self, queue_name: &str, worker: &str) -> ClaimJobsRequest {
        ClaimJobsRequest {
            queues: vec![(queue(queue_name), 1)],
            limit: 1,
            hold_id: fresh_hold(),
            owner: owner(worker),
            ttl_ms: self.ttl_ms(),
            wait_ms: 0,
            waited_before_ms: 0,
        }
    }

    /// The terms of one who waits for longer than any case lasts.
    pub(super) fn claim_and_wait(&self, queue_name: &str, worker: &str) -> ClaimJobsRequest {
        ClaimJobsRequest {
            wait_ms: (self.ttl_ms() * 20).min(WAIT_MS_MAX),
            ..self.claim_for(queue_name, worker)
        }
    }

    pub(super) fn claim_raw(&self, request: ClaimJobsRequest) -> Result<ClaimedJobs, StoreError> {
        self.drive(jobs_of(&*self.handle(&request.owner)).claim(&self.call, request))
    }

    pub(super) fn claim(&self, request: ClaimJobsRequest) -> Vec<ClaimedWork> {
        let hold = request.hold_id;
        works(hold, self.claim_raw(request).expect("a claim that is answered"))
    }

    pub(super) fn try_work(&self, queue_name: &str, worker: &str) -> Option<ClaimedWork> {
        self.claim(self.claim_for(queue_name, worker)).pop()
    }

    /// Claims the next job of a queue, which must have one.
    pub(super) fn work(&self, queue_name: &str, worker: &str) -> ClaimedWork {
        self.try_work(queue_name, worker).expect("a queue with a job that is ready")
    }

    /// Enqueues a job and claims it.
    pub(super) fn new_work(&self, queue_name: &str, worker: &str) -> ClaimedWork {
        let id = self.put_with(NewJob { options: terms(), ..self.job_for(queue_name) });
        let work = self.work(queue_name, worker);
        assert_eq!(work.job.id, id, "the only one that is ready");
        work
    }

    pub(super) fn start_claim(
        &self,
        request: ClaimJobsRequest,
    ) -> PendingCall<Result<ClaimedJobs, StoreError>> {
        let (store, call) = (self.handle(&request.owner), self.call.clone());
        PendingCall::start(
            self.test_store.clone(),
            async move { jobs_of(&*store).claim(&call, request).await },
        )
    }

    /// Stands in line for jobs, and returns when the store shows it there.
    pub(super) fn enqueue_waiters(
        &self,
        request: ClaimJobsRequest,
    ) -> PendingCall<Result<ClaimedJobs, StoreError>> {
        let name = request.queues[0].0.to_string();
        let before = self.queue_view(&name).map_or(0, |view| view.waiting_claim_count);
        let pending = self.start_claim(request);
        until("standing in line", || {
            self.queue_view(&name).is_some_and(|view| view.waiting_claim_count > before)
        });
        pending
    }

    pub(super) fn renew_attempts(
        &self,
        attempts: Vec<AttemptRef>,
    ) -> Vec<Result<AttemptRenewal, JobRefusal>> {
        let renewed = self.drive(jobs_of(&*self.test_store.store()).renew_attempts(&self.call, attempts));
        renewed.expect("renewals that are answered").results
    }

    pub(super) fn renew_work(&self, work: &ClaimedWork) -> Result<AttemptRenewal, JobRefusal> {
        only(self.renew_attempts(vec![work.attempt()]))
    }

    pub(super) fn report_all(&self, reports: Vec<AttemptReport>) -> Vec<Result<ReportedAttempt, JobRefusal>> {
        self.report_raw(reports).expect("reports that are answered")
    }

    pub(super) fn report_raw(
        &self,
        reports: Vec<AttemptReport>,
    ) -> Result<Vec<Result<ReportedAttempt, JobRefusal>>, StoreError> {
        self.drive(jobs_of(&*self.test_store.store()).report(&self.call, reports))
    }

    pub(super) fn say(&self, by: &ClaimedWork, word: Report) -> Result<ReportedAttempt, JobRefusal> {
        self.say_as(by.attempt(), word)
    }

    pub(super) fn say_as(&self, attempt: AttemptRef, word: Report) -> Result<ReportedAttempt, JobRefusal> {
        only(self.report_all(vec![AttemptReport { attempt, report: word }]))
    }

    pub(super) fn complete(&self, work: &ClaimedWork) -> Result<ReportedAttempt, JobRefusal> {
        self.say(work, completed())
    }

    pub(super) fn fail(&self, work: &ClaimedWork) -> Result<ReportedAttempt, JobRefusal> {
        self.say(work, failed())
    }

    pub(super) fn fail_for_good(&self, work: &ClaimedWork) -> Result<ReportedAttempt, JobRefusal> {
        self.say(
            work,
            Report::Fail { error: "no such customer".to_owned(), retry_in_ms: None, permanent: true },
        )
    }

    pub(super) fn write_ledger(
        &self,
        work: &ClaimedWork,
        act: LedgerEntry,
    ) -> Result<LedgerResponse, JobRefusal> {
        let entries = vec![AttemptLedgerEntry { attempt: work.attempt(), entry: act }];
        only(
            self.drive(jobs_of(&*self.test_store.store()).write_effects(&self.call, entries))
                .expect("entries that are answered"),
        )
    }

    pub(super) fn announce(
        &self,
        work: &ClaimedWork,
        name: &str,
        policy: InDoubtPolicy,
    ) -> Result<LedgerResponse, JobRefusal> {
        self.write_ledger(work, LedgerEntry::Begin { effect: effect(name), in_doubt_policy: policy })
    }

    pub(super) fn record(
        &self,
        work: &ClaimedWork,
        name: &str,
        value: &str,
    ) -> Result<LedgerResponse, JobRefusal> {
        let (effect, value) = (effect(name), value.into());
        self.write_ledger(work, LedgerEntry::Record { effect, value, compensation: None })
    }

    pub(super) fn record_with_undo(
        &self,
        work: &ClaimedWork,
        name: &str,
        undo: Compensation,
    ) -> Result<LedgerResponse, JobRefusal> {
        let (effect, value) = (effect(name), "1".into());
        self.write_ledger(work, LedgerEntry::Record { effect, value, compensation: Some(undo) })
    }

    /// Records an effect that a job of the kind `undo-NAME` in the queue `undo` undoes.
    pub(super) fn record_undoable(&self, work: &ClaimedWork, name: &str) {
        let payload = format!("{{\"undo\":\"{name}\"}}").into();
        let undo = Compensation { kind: kind(&format!("undo-{name}")), queue: Some(queue("undo")), payload };
        assert_matches!(self.record_with_undo(work, name, undo), Ok(LedgerResponse::Recorded { .. }));
    }

    pub(super) fn find(&self, id: JobId) -> Option<JobDetail> {
        self.drive(jobs_of(&*self.test_store.store()).get_job(&self.call, id))
            .expect("a job that can be read")
    }

    pub(super) fn detail(&self, id: JobId) -> JobDetail {
        self.find(id).expect("a job that is there")
    }

    pub(super) fn state(&self, id: JobId) -> JobState {
        self.detail(id).job.state
    }

    /// How the last attempt at a job ended.
    pub(super) fn ended(&self, id: JobId) -> Option<AttemptOutcome> {
        self.detail(id).attempts.last().map(|attempt| attempt.outcome)
    }

    /// Failures and crashes of a job so far.
    pub(super) fn counts_of(&self, id: JobId) -> (u16, u16) {
        let JobView { failure_count: failures, crash_count: crashes, .. } = self.detail(id).job;
        (failures, crashes)
    }

    /// Lets the claim of a job run out, and returns when that is on record.
    pub(super) fn die(&self, work: &ClaimedWork) {
        let runner = self.detail(work.job.id).job.runner.expect("a worker has it");
        self.pass(runner.remaining_ms);
        // Not by its state: another worker may have it the next moment.
        let is_noted = |attempt: &AttemptView| attempt.token == work.job.token;
        until("a dead holder that is noticed", || self.detail(work.job.id).attempts.iter().any(is_noted));
    }

    /// Lets the claim of a job run out, and the time pass in which a crashed job comes back.
    pub(super) fn crash(&self, work: &ClaimedWork) {
        self.die(work);
        self.pass(CRASH_SPREAD_MS);
    }

    pub(super) fn act_raw(&self, request: ChangeJobsRequest) -> Result<ChangeJobBatchResponse, StoreError> {
        self.drive(jobs_of(&*self.test_store.other()).change_jobs(&self.call, request))
    }

    pub(super) fn act(&self, id: JobId, action: JobAction) -> Result<JobState, JobRefusal> {
        let selector = JobSelector::Ids { job_ids: vec![id] };
        let request = ChangeJobsRequest::new(selector, action, owner("P"));
        let acted = self.act_raw(request).expect("an action that is answered");
        let item = only(acted.results);
        assert_eq!((item.job_id, acted.next_cursor), (id, None));
        item.result
    }

    pub(super) fn cancel(&self, id: JobId, now: bool) -> Result<JobState, JobRefusal> {
        let reason = Some(Reason::new("the customer left").expect("a reason"));
        self.act(id, JobAction::Cancel { reason, force: now })
    }

    pub(super) fn retry(&self, id: JobId) -> Result<JobState, JobRefusal> {
        self.act(id, JobAction::Retry)
    }

    pub(super) fn delete(&self, id: JobId, force: bool) -> Result<JobState, JobRefusal> {
        self.act(id, JobAction::Delete { force })
    }

    pub(super) fn queue_view(&self, name: &str) -> Option<QueueView> {
        let views = self
            .drive(jobs_of(&*self.test_store.store()).list_queues(&self.call))
            .expect("queues that can be read");
        views.queues.into_iter().find(|view| view.name.as_str() == name)
    }

    /// How many jobs a queue has in a state.
    pub(super) fn count(&self, name: &str, state: JobState) -> u64 {
        self.queue_view(name).map_or(0, |view| view.job_counts.get(state))
    }

    pub(super) fn set_queue(&self, name: &str, mode: QueueMode) -> QueueView {
        let order = SetQueueModeRequest { queue: queue(name), mode, by: owner("P") };
        self.drive(jobs_of(&*self.test_store.other()).set_queue_mode(&self.call, order))
            .expect("a queue that obeys")
    }

    pub(super) fn remove_queue(&self, name: &str) -> Result<bool, StoreError> {
        let store = self.test_store.other();
        self.drive(jobs_of(&*store).delete_queue(&self.call, queue(name), owner("P")))
    }

    pub(super) fn start_wait(
        &self,
        id: JobId,
        wait_ms: u64,
    ) -> PendingCall<Result<Option<JobDetail>, StoreError>> {
        let (store, call) = (self.test_store.other(), self.call.clone());
        let request = WaitRequest { id, wait_ms };
        PendingCall::start(self.test_store.clone(), async move {
            jobs_of(&*store).wait_for_job(&call, request).await
        })
    }

    /// All jobs that match, page by page.
    pub(super) fn jobs_where(&self, filter: &JobFilter, page: usize) -> Vec<JobView> {
        let mut request = ListJobsRequest { filter: filter.clone(), cursor: None, limit: page };
        let mut jobs = Vec::new();
        loop {
            let found = self
                .drive(jobs_of(&*self.test_store.store()).list_jobs(&self.call, request.clone()))
                .expect("a page");
            assert!(found.jobs.len() <= page, "a page that is too long");
            jobs.extend(found.jobs);
            request.cursor = found.next_cursor;
            if request.cursor.is_none() {
                return jobs;
            }
        }
    }

    /// What people should know of effects, page by page.
    pub(super) fn findings(&self) -> Vec<EffectView> {
        let mut request = ListEffectsRequest { cursor: None, limit: 10 };
        let mut findings = Vec::new();
        loop {
            let found = self
                .drive(jobs_of(&*self.test_store.store()).list_effects(&self.call, request.clone()))
                .expect("a page");
            findings.extend(found.effects);
            request.cursor = found.next_cursor;
            if request.cursor.is_none() {
                return findings;
            }
        }
    }

    /// What is on record about a job, oldest first.
    /// Reports that a completion under this claim was refused elsewhere. Whether that was recorded.
    pub(super) fn report_blocked_claim(&self, work: &ClaimedWork) -> bool {
        let key = Key::new(format!("job/{}", work.job.id)).expect("a key");
        let report = BlockedWrite { key, token: work.job.token, action: BlockedAction::Complete };
        self.drive(self.test_store.store().report_blocked_write(&self.call, report))
            .expect("a report that is answered")
            .recorded
    }

    pub(super) fn job_facts(&self, id: JobId) -> Vec<EventData> {
        self.facts(&format!("job/{id}"))
    }
}

/// The jobs of one claim, each as its worker knows it.
pub(super) fn works(hold: HoldId, claimed: ClaimedJobs) -> Vec<ClaimedWork> {
    claimed.jobs.into_iter().map(|job| ClaimedWork { hold, job }).collect()
}

/// The one answer to a call of one item.
pub(super) fn only<T: std::fmt::Debug>(mut answers: Vec<T>) -> T {
    assert_eq!(answers.len(), 1, "one answer for one item: {answers:?}");
    answers.remove(0)
}

/// Whether a refusal says that a job went on under a newer token.
#[track_caller]
pub(super) fn assert_stale<T: std::fmt::Debug>(answer: Result<T, JobRefusal>, stale: Token, newest: Token) {
    match answer {
        Err(JobRefusal::Stale { token, current_token: current, .. }) => {
            assert_eq!((token, current), (stale, newest));
        }
        other => panic!("a stale attempt got {other:?}"),
    }
}

/// Whether a refusal says that an attempt is over, and how.
#[track_caller]
pub(super) fn assert_over<T: std::fmt::Debug + PartialEq>(
    answer: Result<T, JobRefusal>,
    work: &ClaimedWork,
    how: AttemptOutcome,
) {
    assert_eq!(answer, Err(JobRefusal::Over { token: work.job.token, outcome: how }));
}

/// Terms on which every number is known: three attempts, two crashes, a fixed delay without jitter.
pub(super) fn terms() -> JobOptions {
    let retry_ms = u32::try_from(RETRY_MS).expect("a short delay");
    let retry = RetryPolicy::fixed(Duration::from_millis(retry_ms.into()));
    JobOptions { max_failures: 3, max_crashes: 2, retry, ..JobOptions::default() }
}

pub(super) fn completed() -> Report {
    Report::Complete { result: Some("{\"sent\":true}".into()) }
}

pub(super) fn failed() -> Report {
    Report::Fail { error: "no route to host".to_owned(), retry_in_ms: None, permanent: false }
}

#[expect(clippy::unnecessary_wraps, reason = "reads like the field of a job that it is")]
pub(super) fn unique(key: &str, window_ms: u64) -> Option<Unique> {
    Some(Unique { key: UniqueKey::new(key).expect("a unique key"), window_ms })
}

pub(super) fn label(name: &str, value: &str) -> (Box<str>, Box<str>) {
    (name.into(), value.into())
}

/// A job id that no other job of this process has, and its number.
pub(super) fn fresh_id() -> (JobId, u64) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut bits = [0x5a; 10];
    bits[2..].copy_from_slice(&number.to_be_bytes());
    (JobId::from_random(1_763_000_000_000, bits), number)
}

pub(super) fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a queue")
}

pub(super) fn kind(name: &str) -> JobKind {
    JobKind::new(name).expect("a kind")
}

pub(super) fn effect(name: &str) -> EffectName {
    EffectName::new(name).expect("an effect")
}
