//! The jobs behind the gate.

use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use fencehold::job::{
    ChangeJobBatchResponse, EffectPage, EnqueuedJob, JobDetail, JobId, JobPage, ListEffectsRequest,
    ListJobsRequest, QueueView, ReportedAttempt, ScheduleName, ScheduleSpec, ScheduleView,
};
use fencehold::store::{CallContext, JobStore, LeaseStore, StoreError};
use fencehold::{Job, Owner, Worker};
use fencehold_contract::job::{
    AttemptLedgerEntry, AttemptRef, AttemptReport, BeginOperationRequest, BegunOperation, ChangeJobsRequest,
    ClaimJobsRequest, ClaimedJobs, LedgerResponse, NewJob, RenewAttemptBatchResponse, ResolveEffectRequest,
    SetQueueModeRequest, WaitRequest,
};
use fencehold_core::job::{QueueName, Refusal};

use super::{Gate, Verb, World, locked, within};

/// How long a worker's claims last.
const TTL_MS: u64 = 10_000;
/// How many jobs are changed in one call at most, so that a few of them need several pages.
const CHANGED_MAX: usize = 2;

/// What has come through.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    enqueues: Mutex<Vec<usize>>,
    claims: Mutex<Vec<ClaimJobsRequest>>,
    renewals: Mutex<Vec<Vec<AttemptRef>>>,
    reports: Mutex<Vec<Vec<AttemptReport>>>,
}

impl Gate {
    /// How many jobs each call has brought.
    pub(crate) fn enqueues(&self) -> Vec<usize> {
        locked(&self.work.enqueues).clone()
    }

    pub(crate) fn claims(&self) -> Vec<ClaimJobsRequest> {
        locked(&self.work.claims).clone()
    }

    pub(crate) fn claim_renewals(&self) -> Vec<Vec<AttemptRef>> {
        locked(&self.work.renewals).clone()
    }

    pub(crate) fn reports(&self) -> Vec<Vec<AttemptReport>> {
        locked(&self.work.reports).clone()
    }

    fn inside(&self) -> &dyn JobStore {
        LeaseStore::jobs(&self.inner).expect("memory: keeps jobs")
    }
}

impl World {
    /// A worker with one slot that claims nothing ahead and has a ttl of 10 s, on the queue `q`.
    pub(crate) fn worker(&self) -> Worker {
        self.fh
            .worker()
            .queue("q", 1)
            .concurrency(1)
            .prefetch(0)
            .ttl(Duration::from_millis(TTL_MS))
    }

    /// Puts a job into the queue `q`.
    pub(crate) async fn enqueue(&self, kind: &str) -> JobId {
        within(self.fh.queue("q").job(kind, &()).enqueue())
            .await
            .expect("enqueued")
            .job_id
    }

    /// How a job stands, past the handle and its breaker.
    pub(crate) async fn job(&self, id: JobId) -> JobDetail {
        let found = within(JobStore::get_job(&*self.gate, &self.fh.call(), id)).await;
        found.expect("an answer").expect("a job")
    }

    /// Lets time pass until the claim of a job must have been renewed, and waits until it has been, for so long.
    pub(crate) async fn pass_renewal(&self, job: &Job, renewed_for_ms: u64) {
        self.pass(super::RENEWED_BY_MS);
        let deadline_ms = self.now_ms() + renewed_for_ms;
        within(async {
            while job.deadline_ms() != deadline_ms {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }

    /// Lets time pass, a tenth of a second for every answer of the store, until a job stands as wanted. It stands still while
    /// a claim of its, or of one of those that `run` beside it, is to be renewed: that may be slow.
    pub(crate) async fn pass_until_job(
        &self,
        id: JobId,
        run: &[JobId],
        wanted: impl Fn(&JobDetail) -> bool,
    ) -> JobDetail {
        let half_ms = TTL_MS / 2;
        let is_fresh = |detail: &JobDetail| {
            let runner = detail.job.runner.as_ref();
            runner.is_none_or(|runner| runner.remaining_ms > half_ms)
        };
        within(async {
            loop {
                let detail = self.job(id).await;
                if wanted(&detail) {
                    return detail;
                }
                let mut fresh = is_fresh(&detail);
                for other in run {
                    fresh &= is_fresh(&self.job(*other).await);
                }
                if fresh {
                    self.pass(100);
                }
            }
        })
        .await
    }

    /// Waits until the queue `q` stands as wanted.
    pub(crate) async fn until_queue(&self, wanted: impl Fn(&QueueView) -> bool) -> QueueView {
        within(async {
            loop {
                let view = self.fh.queue("q").view().await.expect("an answer");
                if let Some(view) = view.filter(&wanted) {
                    return view;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }

    /// Waits until a job stands as wanted. The store answers in order, so this needs no time.
    pub(crate) async fn until_job(&self, id: JobId, wanted: impl Fn(&JobDetail) -> bool) -> JobDetail {
        within(async {
            loop {
                let detail = self.job(id).await;
                if wanted(&detail) {
                    return detail;
                }
                tokio::task::yield_now().await;
            }
        })
        .await
    }
}

#[async_trait]
impl JobStore for Gate {
    async fn enqueue(
        &self,
        call: &CallContext,
        jobs: Vec<NewJob>,
    ) -> Result<Vec<Result<EnqueuedJob, Refusal>>, StoreError> {
        locked(&self.work.enqueues).push(jobs.len());
        self.pass(Verb::Enqueue, call, || self.inside().enqueue(call, jobs.clone()))
            .await
    }

    async fn claim(&self, call: &CallContext, request: ClaimJobsRequest) -> Result<ClaimedJobs, StoreError> {
        locked(&self.work.claims).push(request.clone());
        self.pass(Verb::Claim, call, || self.inside().claim(call, request.clone()))
            .await
    }

    async fn renew_attempts(
        &self,
        call: &CallContext,
        attempts: Vec<AttemptRef>,
    ) -> Result<RenewAttemptBatchResponse, StoreError> {
        locked(&self.work.renewals).push(attempts.clone());
        self.pass(Verb::RenewClaims, call, || self.inside().renew_attempts(call, attempts.clone()))
            .await
    }

    async fn report(
        &self,
        call: &CallContext,
        reports: Vec<AttemptReport>,
    ) -> Result<Vec<Result<ReportedAttempt, Refusal>>, StoreError> {
        locked(&self.work.reports).push(reports.clone());
        self.pass(Verb::Report, call, || self.inside().report(call, reports.clone()))
            .await
    }

    async fn write_effects(
        &self,
        call: &CallContext,
        entries: Vec<AttemptLedgerEntry>,
    ) -> Result<Vec<Result<LedgerResponse, Refusal>>, StoreError> {
        self.pass(Verb::Ledger, call, || self.inside().write_effects(call, entries.clone()))
            .await
    }

    async fn get_job(&self, call: &CallContext, id: JobId) -> Result<Option<JobDetail>, StoreError> {
        self.inside().get_job(call, id).await
    }

    async fn wait_for_job(
        &self,
        call: &CallContext,
        request: WaitRequest,
    ) -> Result<Option<JobDetail>, StoreError> {
        self.inside().wait_for_job(call, request).await
    }

    async fn list_jobs(&self, call: &CallContext, request: ListJobsRequest) -> Result<JobPage, StoreError> {
        self.inside().list_jobs(call, request).await
    }

    async fn change_jobs(
        &self,
        call: &CallContext,
        mut request: ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, StoreError> {
        request.limit = request.limit.min(CHANGED_MAX);
        self.inside().change_jobs(call, request).await
    }

    async fn list_queues(&self, call: &CallContext) -> Result<Vec<QueueView>, StoreError> {
        self.inside().list_queues(call).await
    }

    async fn set_queue_mode(
        &self,
        call: &CallContext,
        order: SetQueueModeRequest,
    ) -> Result<QueueView, StoreError> {
        self.inside().set_queue_mode(call, order).await
    }

    async fn list_schedules(&self, call: &CallContext) -> Result<Vec<ScheduleView>, StoreError> {
        self.inside().list_schedules(call).await
    }

    async fn set_schedule(&self, call: &CallContext, spec: ScheduleSpec) -> Result<ScheduleView, StoreError> {
        self.inside().set_schedule(call, spec).await
    }

    async fn delete_queue(
        &self,
        call: &CallContext,
        queue: QueueName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        self.inside().delete_queue(call, queue, by).await
    }

    async fn delete_schedule(
        &self,
        call: &CallContext,
        name: ScheduleName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        self.inside().delete_schedule(call, name, by).await
    }

    async fn begin_operation(
        &self,
        call: &CallContext,
        request: BeginOperationRequest,
    ) -> Result<Result<BegunOperation, Refusal>, StoreError> {
        self.pass(Verb::Begin, call, || self.inside().begin_operation(call, request.clone()))
            .await
    }

    async fn list_effects(
        &self,
        call: &CallContext,
        request: ListEffectsRequest,
    ) -> Result<EffectPage, StoreError> {
        self.inside().list_effects(call, request).await
    }

    async fn resolve_effect(
        &self,
        call: &CallContext,
        request: ResolveEffectRequest,
    ) -> Result<Result<(), Refusal>, StoreError> {
        self.inside().resolve_effect(call, request).await
    }
}
