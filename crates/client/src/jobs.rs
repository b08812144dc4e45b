//! Jobs from the outside: looking at them, waiting for them, acting upon them.

use std::time::Duration;

use fencehold_contract::job::{
    ChangeJobBatchResponse, ChangeJobsRequest, EffectPage, EffectResolution, JobAction, JobCounts, JobDetail,
    JobFilter, JobPage, JobSelector, ListEffectsRequest, ListJobsRequest, QueueView, ResolveEffectRequest,
    ScheduleView, WaitRequest,
};
use fencehold_core::Reason;
use fencehold_core::job::{EffectName, JobId, JobState};
use fencehold_core::limits::WAIT_MS_MAX;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connect::Fencehold;
use crate::error::Error;
use crate::json;
use crate::time::ms;
use crate::tries::{Tries, ask, ask_until, only};

impl Fencehold {
    /// The jobs of all queues: looking at them, waiting for them, acting upon them.
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
        let found =
            ask(self.fencehold.hub(), |jobs, call| async move { jobs.get_job(&call, id).await }).await?;
        found.ok_or(Error::JobNotFound { job: id })
    }

    /// Waits for a job to come to its end, and gives its result.
    ///
    /// [`Error::JobFailed`]: it ended without one, or waits for a person. [`Error::JobNotFinished`]: the time was up.
    pub async fn wait<T: DeserializeOwned>(&self, id: JobId, limit: Duration) -> Result<T, Error> {
        let detail = self.wait_for(id, limit).await?;
        match detail.job.state {
            JobState::Completed => {
                let result = detail.result.as_deref().unwrap_or(json::NOTHING);
                Ok(json::read("result", result)?)
            }
            state if state.is_settled() => {
                let error = detail.attempts.last().and_then(|attempt| attempt.error.as_deref());
                Err(Error::JobFailed { job: id, state, error: error.map(str::to_owned) })
            }
            state => Err(Error::JobNotFinished { job: id, state, waited: limit }),
        }
    }

    /// Everything about one job once it has come to its end or waits for a person, or as it stands when the time is up.
    pub async fn wait_for(&self, id: JobId, limit: Duration) -> Result<JobDetail, Error> {
        let hub = self.fencehold.hub();
        let until_ms = hub.now_ms().saturating_add(ms(limit));
        loop {
            let wait_ms = until_ms.saturating_sub(hub.now_ms()).min(WAIT_MS_MAX);
            let tries = Tries::new(Some(until_ms.max(hub.now_ms().saturating_add(hub.patience_ms))));
            let found = ask_until(hub, tries, wait_ms, |jobs, call| {
                let wait_ms = until_ms.saturating_sub(hub.now_ms()).min(WAIT_MS_MAX);
                async move { jobs.wait_for_job(&call, WaitRequest { id, wait_ms }).await }
            })
            .await?;
            let detail = found.ok_or(Error::JobNotFound { job: id })?;
            if detail.job.state.is_settled() || hub.now_ms() >= until_ms {
                return Ok(detail);
            }
        }
    }

    /// Jobs, a page at a time, in the order of their arrival.
    pub async fn list(&self, request: ListJobsRequest) -> Result<JobPage, Error> {
        ask(self.fencehold.hub(), |jobs, call| {
            let request = request.clone();
            async move { jobs.list_jobs(&call, request).await }
        })
        .await
    }

    /// Every queue: what it does, and how many jobs it has in which state.
    pub async fn queues(&self) -> Result<Vec<QueueView>, Error> {
        ask(self.fencehold.hub(), |jobs, call| async move { jobs.list_queues(&call).await }).await
    }

    /// How many jobs there are in which state, all queues together.
    pub async fn counts(&self) -> Result<JobCounts, Error> {
        let mut sum = JobCounts::default();
        for mut view in self.queues().await? {
            for state in JobState::ALL {
                *sum.of(state) += *view.job_counts.of(state);
            }
        }
        Ok(sum)
    }

    /// Calls a job off. One that runs is told at once where the store can, else with its next renewal, and is cancelled when its attempt has ended; the
    /// answer is how it stands now.
    pub async fn cancel(&self, id: JobId, reason: Option<Reason>) -> Result<JobState, Error> {
        self.act_on(id, JobAction::Cancel { reason, force: false }).await
    }

    /// Calls a job off without waiting for whoever works on it: what that still says is refused.
    pub async fn cancel_now(&self, id: JobId, reason: Option<Reason>) -> Result<JobState, Error> {
        self.act_on(id, JobAction::Cancel { reason, force: true }).await
    }

    /// Has a job start over that has failed, was cancelled, quarantined or is scheduled for later.
    pub async fn retry(&self, id: JobId) -> Result<JobState, Error> {
        self.act_on(id, JobAction::Retry).await
    }

    /// Forgets a job; `force`: also while somebody works on it.
    pub async fn delete(&self, id: JobId, force: bool) -> Result<JobState, Error> {
        self.act_on(id, JobAction::Delete { force }).await
    }

    async fn act_on(&self, id: JobId, action: JobAction) -> Result<JobState, Error> {
        let acted = self.act(JobSelector::Ids { job_ids: vec![id] }, action, false).await?;
        only(acted.results)?.result.map_err(|refusal| Error::job_refused(id, refusal))
    }

    /// Does something to some jobs, or to a page of all that match; or only says what would be done.
    pub async fn act(
        &self,
        on: JobSelector,
        action: JobAction,
        dry_run: bool,
    ) -> Result<ChangeJobBatchResponse, Error> {
        let by = self.fencehold.owner().clone();
        self.change(ChangeJobsRequest { dry_run, ..ChangeJobsRequest::new(on, action, by) })
            .await
    }

    async fn change(&self, request: ChangeJobsRequest) -> Result<ChangeJobBatchResponse, Error> {
        ask(self.fencehold.hub(), |jobs, call| {
            let request = request.clone();
            async move { jobs.change_jobs(&call, request).await }
        })
        .await
    }

    /// Does something to all jobs that match, however many pages they are. Gives how many it was done to.
    pub async fn act_on_all(&self, filter: JobFilter, action: JobAction) -> Result<u64, Error> {
        let (mut cursor, mut done) = (None, 0);
        loop {
            let limit = fencehold_core::limits::PAGE_MAX;
            let selector = JobSelector::Filter { filter: filter.clone() };
            let request = ChangeJobsRequest::new(selector, action.clone(), self.fencehold.owner().clone());
            let acted = self.change(ChangeJobsRequest { cursor, limit, ..request }).await?;
            done += u64::try_from(acted.results.iter().filter(|item| item.result.is_ok()).count())
                .unwrap_or(u64::MAX);
            match acted.next_cursor {
                Some(next) => cursor = Some(next),
                None => return Ok(done),
            }
        }
    }

    /// Effects that people should know of: open intents, effects not (yet) undone, effects of superseded tokens.
    pub async fn findings(&self, request: ListEffectsRequest) -> Result<EffectPage, Error> {
        ask(self.fencehold.hub(), |jobs, call| {
            let request = request.clone();
            async move { jobs.list_effects(&call, request).await }
        })
        .await
    }

    /// Says what became of an effect that nobody knew of: it happened and gave this, or (`None`) it did not. The job goes
    /// on.
    pub async fn resolve<T: Serialize>(
        &self,
        id: JobId,
        effect: impl AsRef<str>,
        happened: Option<&T>,
    ) -> Result<(), Error> {
        let happened = match happened {
            Some(value) => EffectResolution::Happened { value: json::written("value of an effect", value)? },
            None => EffectResolution::DidNotHappen {},
        };
        let effect = EffectName::new(effect.as_ref())?;
        let request = ResolveEffectRequest {
            job_id: id,
            effect,
            resolution: happened,
            by: self.fencehold.owner().clone(),
        };
        let resolved = ask(self.fencehold.hub(), |jobs, call| {
            let request = request.clone();
            async move { jobs.resolve_effect(&call, request).await }
        });
        resolved.await?.map_err(|refusal| Error::job_refused(id, refusal))
    }

    /// Every schedule. [`Fencehold::schedule`] makes and removes them.
    pub async fn schedules(&self) -> Result<Vec<ScheduleView>, Error> {
        ask(self.fencehold.hub(), |jobs, call| async move { jobs.list_schedules(&call).await }).await
    }
}
