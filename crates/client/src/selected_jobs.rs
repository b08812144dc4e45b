//! Many jobs, changed together.

use std::fmt;

use fencehold_contract::job::{ChangeJobResult, JobAction, JobSelector};
use fencehold_core::Reason;
use fencehold_core::job::{JobId, JobState};

use crate::error::Error;
use crate::jobs::Jobs;

impl Jobs {
    /// The jobs that a selector names, to be changed together.
    ///
    /// ```
    /// use fencehold::Fencehold;
    /// use fencehold::job::JobSelector;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let emails = fh.queue("emails");
    /// let mut job_ids = Vec::new();
    /// for to in ["a@example.org", "b@example.org"] {
    ///     job_ids.push(emails.job("send", to).enqueue().await?.job_id);
    /// }
    /// let selected = fh.jobs().select(JobSelector::Ids { job_ids });
    /// let would_be = selected.clone().dry_run().cancel(None).await?;
    /// let cancelled = selected.cancel(None).await?;
    /// assert!(cancelled.results().len() == 2 && cancelled.results().iter().all(|job| job.result.is_ok()));
    /// # assert_eq!(would_be.results().len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn select(&self, selector: JobSelector) -> SelectedJobs {
        SelectedJobs { jobs: self.clone(), selector, dry_run: false }
    }
}

/// Jobs that a selector names: they are changed page after page, and there is a result for each.
#[derive(Clone, Debug)]
#[must_use = "nothing is changed until one of `cancel`, `retry`, `delete` is awaited"]
pub struct SelectedJobs {
    jobs: Jobs,
    selector: JobSelector,
    dry_run: bool,
}

impl SelectedJobs {
    /// Changes nothing: the response says what would be.
    pub fn dry_run(self) -> Self {
        SelectedJobs { dry_run: true, ..self }
    }

    /// Cancels them, each as [`Jobs::cancel`] does.
    pub async fn cancel(self, reason: Option<Reason>) -> Result<ChangedJobs, SelectedJobsError> {
        self.change(JobAction::Cancel { reason, force: false }).await
    }

    /// Cancels them, each as [`Jobs::force_cancel`] does: what their workers still report is refused.
    pub async fn force_cancel(self, reason: Option<Reason>) -> Result<ChangedJobs, SelectedJobsError> {
        self.change(JobAction::Cancel { reason, force: true }).await
    }

    /// Starts them again, each as [`Jobs::retry`] does.
    pub async fn retry(self) -> Result<ChangedJobs, SelectedJobsError> {
        self.change(JobAction::Retry).await
    }

    /// Deletes them, each as [`Jobs::delete`] does.
    pub async fn delete(self) -> Result<ChangedJobs, SelectedJobsError> {
        self.change(JobAction::Delete { force: false }).await
    }

    /// Deletes them, each as [`Jobs::force_delete`] does: what their workers still report is refused.
    pub async fn force_delete(self) -> Result<ChangedJobs, SelectedJobsError> {
        self.change(JobAction::Delete { force: true }).await
    }

    /// Follows the pages to the last, and puts their results together.
    async fn change(self, action: JobAction) -> Result<ChangedJobs, SelectedJobsError> {
        let mut request = self.jobs.changes(self.selector, action, self.dry_run);
        let mut changed = ChangedJobs { results: Vec::new() };
        loop {
            match self.jobs.change_page(&request).await {
                Ok(page) => {
                    changed.results.extend(page.results.into_iter().map(SelectedJob::from));
                    request.cursor = page.next_cursor;
                }
                Err(error) => return Err(SelectedJobsError { error, changed }),
            }
            if request.cursor.is_none() {
                return Ok(changed);
            }
        }
    }
}

/// What became of selected jobs: one result for each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it alone says which jobs were not changed"]
pub struct ChangedJobs {
    results: Vec<SelectedJob>,
}

impl ChangedJobs {
    /// One result for each job.
    pub fn results(&self) -> &[SelectedJob] {
        &self.results
    }

    /// How each job stands now, or the first error. The jobs that have none are changed all the same.
    pub fn all(self) -> Result<Vec<(JobId, JobState)>, Error> {
        self.into_iter().map(|job| Ok((job.job_id, job.result?))).collect()
    }
}

impl IntoIterator for ChangedJobs {
    type Item = SelectedJob;
    type IntoIter = std::vec::IntoIter<SelectedJob>;

    fn into_iter(self) -> Self::IntoIter {
        self.results.into_iter()
    }
}

/// One of the selected jobs, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelectedJob {
    /// Which job.
    pub job_id: JobId,
    /// How it stands now, or why it was not changed.
    pub result: Result<JobState, Error>,
}

impl From<ChangeJobResult> for SelectedJob {
    fn from(ChangeJobResult { job_id, result }: ChangeJobResult) -> Self {
        SelectedJob { job_id, result: result.map_err(|refusal| Error::job_refused(job_id, refusal)) }
    }
}

/// Why selected jobs were not changed, or not all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SelectedJobsError {
    /// What went wrong.
    pub error: Error,
    /// What became of the jobs before that.
    pub changed: ChangedJobs,
}

impl fmt::Display for SelectedJobsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.changed.results.len() {
            0 => self.error.fmt(f),
            count => write!(f, "after {count} jobs: {}", self.error),
        }
    }
}

impl std::error::Error for SelectedJobsError {}
