//! The jobs behind the gate.

use std::sync::Mutex;
use std::time::Duration;

use fencehold::job::{JobDetail, JobId, JobState, QueueView};
use fencehold::store::JobStore;
use fencehold::{Job, JobError, Worker};
use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest};
use fencehold_contract::operation::JobRequest;
use serde::de::DeserializeOwned;

use super::{GatedCall, GatedFixture, GatedStore, done, locked, secs, within};

/// How long a worker's claims last.
const TTL_MS: u64 = 10_000;
/// How many jobs are changed in one call at most, so that a few of them need several pages.
const CHANGED_MAX: usize = 2;

/// What has come through.
#[derive(Debug, Default)]
pub(crate) struct SeenCalls {
    enqueues: Mutex<Vec<usize>>,
    claims: Mutex<Vec<ClaimJobsRequest>>,
    renewals: Mutex<Vec<Vec<AttemptRef>>>,
    reports: Mutex<Vec<Vec<AttemptReport>>>,
}

impl GatedStore {
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
}

impl GatedFixture {
    /// A worker with one slot that claims nothing ahead and has a ttl of 10 s, on the queue `q`.
    pub(crate) fn worker(&self) -> Worker {
        let ttl = Duration::from_millis(TTL_MS);
        self.fh.worker().queue("q").concurrency(1).prefetch(0).ttl(ttl)
    }

    /// Puts a job into the queue `q`.
    pub(crate) async fn enqueue(&self, kind: &str) -> JobId {
        done(self.fh.queue("q").job(kind, &()).enqueue()).await.job_id
    }

    /// The result of a job, once it has completed.
    #[track_caller]
    pub(crate) fn result<T: DeserializeOwned>(&self, id: JobId) -> impl Future<Output = T> {
        let jobs = self.fh.jobs();
        done(async move { jobs.result(id, secs(60)).await })
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

    pub(crate) async fn until_state(&self, id: JobId, state: JobState) -> JobDetail {
        self.until_job(id, |detail| detail.job.state == state).await
    }

    /// Waits until a job has failed for the first time.
    pub(crate) async fn until_failed(&self, id: JobId) -> JobDetail {
        self.until_job(id, |detail| detail.job.failure_count == 1).await
    }
}

/// A handler that gets a copy of this for each job.
pub(crate) fn with<V: Clone, P, R, F: Future<Output = Result<R, JobError>>>(
    value: V,
    handler: impl Fn(V, Job, P) -> F,
) -> impl Fn(Job, P) -> F {
    move |job, payload| handler(value.clone(), job, payload)
}

impl SeenCalls {
    /// Notes a call; and says how the gate calls it, if it minds it.
    pub(super) fn see(&self, ask: &mut JobRequest) -> Option<GatedCall> {
        match ask {
            JobRequest::Enqueue(jobs) => {
                locked(&self.enqueues).push(jobs.len());
                Some(GatedCall::Enqueue)
            }
            JobRequest::Claim(request) => {
                locked(&self.claims).push(request.clone());
                Some(GatedCall::Claim)
            }
            JobRequest::Renew(attempts) => {
                locked(&self.renewals).push(attempts.clone());
                Some(GatedCall::RenewClaims)
            }
            JobRequest::Report(reports) => {
                locked(&self.reports).push(reports.clone());
                Some(GatedCall::Report)
            }
            JobRequest::WriteEffects(_) => Some(GatedCall::Ledger),
            JobRequest::BeginOperation(_) => Some(GatedCall::Begin),
            JobRequest::Change(request) => {
                request.limit = request.limit.min(CHANGED_MAX);
                Some(GatedCall::Change)
            }
            _ => None,
        }
    }
}
