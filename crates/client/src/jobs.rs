//! Jobs from the outside: looking at them, waiting for them, changing them.

use std::time::Duration;

use fencehold_contract::job::{
    ChangeJobBatchResponse, ChangeJobsRequest, EffectPage, EffectResolution, JobAction, JobCounts, JobDetail,
    JobPage, JobSelector, ListEffectsRequest, ListJobsRequest, QueueView, ResolveEffectRequest, ScheduleView,
    WaitRequest,
};
use fencehold_core::Reason;
use fencehold_core::job::{EffectName, JobId, JobState};
use fencehold_core::limits::WAIT_MS_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connect::Fencehold;
use crate::error::Error;
use crate::json;
use crate::retry::{RetryLoop, only};
use crate::time::ms;

impl Fencehold {
    /// The jobs of all queues: looking at them, waiting for them, changing them.
    pub fn jobs(&self) -> Jobs {
        Jobs { fencehold: self.clone() }
    }
}

/// The jobs of all queues.
#[derive(Clone, Debug)]
pub struct Jobs {
    fencehold: Fencehold,
}

impl Jobs {
    /// Everything about one job.
    pub async fn get(&self, id: JobId) -> Result<JobDetail, Error> {
        let found = self.fencehold.ask(|jobs, call| jobs.get_job(call, id)).await?;
        found.ok_or(Error::JobNotFound { job_id: id })
    }

    /// Waits until a job has finished, and gives its result.
    ///
    /// [`Error::JobFailed`]: it finished without one, or waits for a person. [`Error::JobNotFinished`]: the time was up.
    pub async fn result<T: DeserializeOwned>(&self, id: JobId, limit: Duration) -> Result<T, Error> {
        let detail = self.wait(id, limit).await?;
        match detail.job.state {
            JobState::Completed => {
                let result = detail.result.as_deref().unwrap_or(json::NOTHING);
                Ok(json::read("result", result)?)
            }
            state if state.is_settled() => {
                let error = detail.attempts.last().and_then(|attempt| attempt.error.as_deref());
                Err(Error::JobFailed { job_id: id, state, error: error.map(str::to_owned) })
            }
            state => Err(Error::JobNotFinished { job_id: id, state, waited: limit }),
        }
    }

    /// Everything about one job once it has finished or waits for a person, or as it stands when the time is up.
    pub async fn wait(&self, id: JobId, limit: Duration) -> Result<JobDetail, Error> {
        let connection = self.fencehold.connection();
        let until_ms = connection.now_ms().saturating_add(ms(limit));
        loop {
            let wait_ms = until_ms.saturating_sub(connection.now_ms()).min(WAIT_MS_MAX);
            let tries =
                RetryLoop::new(Some(until_ms.max(connection.now_ms().saturating_add(connection.timeout_ms))));
            let found = connection.ask_until(tries, wait_ms, |jobs, call| {
                let wait_ms = until_ms.saturating_sub(connection.now_ms()).min(WAIT_MS_MAX);
                jobs.wait_for_job(call, WaitRequest { id, wait_ms })
            });
            let detail = found.await?.ok_or(Error::JobNotFound { job_id: id })?;
            if detail.job.state.is_settled() || connection.now_ms() >= until_ms {
                return Ok(detail);
            }
        }
    }

    /// Jobs, a page at a time, in the order of their arrival.
    pub async fn list(&self, request: ListJobsRequest) -> Result<JobPage, Error> {
        self.fencehold.ask(|jobs, call| jobs.list_jobs(call, request.clone())).await
    }

    /// Every queue: what it does, and how many jobs it has in which state.
    pub async fn queues(&self) -> Result<Vec<QueueView>, Error> {
        Ok(self.fencehold.ask(|jobs, call| jobs.list_queues(call)).await?.queues)
    }

    /// How many jobs there are in which state, all queues together.
    pub async fn counts(&self) -> Result<JobCounts, Error> {
        let mut sum = JobCounts::default();
        for view in self.queues().await? {
            for state in JobState::ALL {
                *sum.get_mut(state) += view.job_counts.get(state);
            }
        }
        Ok(sum)
    }

    /// Cancels a job. A running one learns it at once where the store can send it, else with its next renewal, and is cancelled
    /// when its attempt has ended. Gives the job's state as it is now.
    pub async fn cancel(&self, id: JobId, reason: Option<Reason>) -> Result<JobState, Error> {
        self.change(id, JobAction::Cancel { reason, force: false }).await
    }

    /// Cancels a job without waiting for the worker that runs it: what that still reports is refused.
    pub async fn force_cancel(&self, id: JobId, reason: Option<Reason>) -> Result<JobState, Error> {
        self.change(id, JobAction::Cancel { reason, force: true }).await
    }

    /// Starts a job again that has failed, was cancelled, quarantined or is scheduled for later.
    pub async fn retry(&self, id: JobId) -> Result<JobState, Error> {
        self.change(id, JobAction::Retry).await
    }

    /// Deletes a job that no worker runs.
    pub async fn delete(&self, id: JobId) -> Result<JobState, Error> {
        self.change(id, JobAction::Delete { force: false }).await
    }

    /// Deletes a job, also while a worker runs it: what that still reports is refused.
    pub async fn force_delete(&self, id: JobId) -> Result<JobState, Error> {
        self.change(id, JobAction::Delete { force: true }).await
    }

    /// Completes a job in place of its worker, who did the work and cannot say so: what that still reports is refused. The reason is
    /// kept with the job.
    ///
    /// ```
    /// use fencehold::{Fencehold, Reason};
    /// use fencehold::job::JobState;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let job = fh.queue("emails").job("send", "a@example.org").enqueue().await?;
    /// let reason = Reason::new("seen in the outbox")?;
    /// let state = fh.jobs().force_complete(job.job_id, &"sent", reason).await?;
    /// assert_eq!(state, JobState::Completed);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn force_complete(
        &self,
        id: JobId,
        result: &(impl Serialize + ?Sized),
        reason: Reason,
    ) -> Result<JobState, Error> {
        let result = Some(json::written("result", result)?);
        self.change(id, JobAction::Complete { result, reason }).await
    }

    /// Fails a job in place of its worker: it is not tried again, and what the worker still reports is refused. The reason is kept with
    /// the job.
    pub async fn force_fail(&self, id: JobId, reason: Reason) -> Result<JobState, Error> {
        self.change(id, JobAction::Fail { reason }).await
    }

    async fn change(&self, id: JobId, action: JobAction) -> Result<JobState, Error> {
        let request = self.changes(JobSelector::Ids { job_ids: vec![id] }, action, false);
        let changed = self.change_page(&request).await?;
        only(changed.results)?.result.map_err(|refusal| Error::job_refused(id, refusal))
    }

    pub(crate) fn changes(
        &self,
        selector: JobSelector,
        action: JobAction,
        dry_run: bool,
    ) -> ChangeJobsRequest {
        let (by, limit) = (self.fencehold.owner().clone(), fencehold_core::limits::PAGE_MAX);
        ChangeJobsRequest { selector, action, by, dry_run, cursor: None, limit }
    }

    pub(crate) async fn change_page(
        &self,
        request: &ChangeJobsRequest,
    ) -> Result<ChangeJobBatchResponse, Error> {
        self.fencehold.ask(|jobs, call| jobs.change_jobs(call, request.clone())).await
    }

    /// Effects that people should know of: open intents, effects that are not compensated (yet), effects under superseded
    /// tokens.
    pub async fn effects(&self, request: ListEffectsRequest) -> Result<EffectPage, Error> {
        self.fencehold.ask(|jobs, call| jobs.list_effects(call, request.clone())).await
    }

    /// Says of an effect in doubt that it happened, and gave this value. The job goes on.
    pub async fn effect_happened(
        &self,
        id: JobId,
        effect: impl AsRef<str>,
        value: &(impl Serialize + ?Sized),
    ) -> Result<(), Error> {
        let value = json::written("value of an effect", value)?;
        self.resolve_effect(id, effect.as_ref(), EffectResolution::Happened { value })
            .await
    }

    /// Says of an effect in doubt that it did not happen. The job goes on, and has it.
    pub async fn effect_did_not_happen(&self, id: JobId, effect: impl AsRef<str>) -> Result<(), Error> {
        self.resolve_effect(id, effect.as_ref(), EffectResolution::DidNotHappen {})
            .await
    }

    async fn resolve_effect(
        &self,
        id: JobId,
        effect: &str,
        resolution: EffectResolution,
    ) -> Result<(), Error> {
        let (effect, by) = (EffectName::new(effect)?, self.fencehold.owner().clone());
        let request = ResolveEffectRequest { job_id: id, effect, resolution, by };
        let resolved = self.fencehold.ask(|jobs, call| jobs.resolve_effect(call, request.clone()));
        resolved.await?.map_err(|refusal| Error::job_refused(id, refusal))
    }

    /// Every schedule. [`Fencehold::schedule`] sets and deletes them.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, Error> {
        self.fencehold.ask(|jobs, call| jobs.list_schedules(call)).await
    }
}
