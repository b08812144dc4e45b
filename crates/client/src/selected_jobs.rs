//! Many jobs, changed together.

use fencehold_contract::job::{ChangeJobBatchResponse, JobAction, JobSelector};
use fencehold_core::Reason;

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
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// let fh = Fencehold::connect("memory:").await?;
    /// let emails = fh.queue("emails");
    /// let mut job_ids = Vec::new();
    /// for to in ["a@example.org", "b@example.org"] {
    ///     job_ids.push(emails.job("send", to).enqueue().await?.job_id);
    /// }
    /// let selected = fh.jobs().select(JobSelector::Ids { job_ids });
    /// let would_be = selected.clone().dry_run().cancel(None).await?;
    /// let cancelled = selected.cancel(None).await?;
    /// assert!(cancelled.results.len() == 2 && cancelled.results.iter().all(|job| job.result.is_ok()));
    /// # assert_eq!(would_be.results.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn select(&self, selector: JobSelector) -> SelectedJobs {
        SelectedJobs { jobs: self.clone(), selector, force: false, dry_run: false }
    }
}

/// Jobs that a selector names: they are changed page after page, and the response has a result for each.
#[derive(Clone, Debug)]
#[must_use = "nothing is changed until `cancel`, `retry` or `delete` is awaited"]
pub struct SelectedJobs {
    jobs: Jobs,
    selector: JobSelector,
    force: bool,
    dry_run: bool,
}

impl SelectedJobs {
    /// Changes nothing: the response says what would be.
    pub fn dry_run(self) -> Self {
        SelectedJobs { dry_run: true, ..self }
    }

    /// Does not wait for the workers that run them: what these still report is refused.
    pub fn force(self) -> Self {
        SelectedJobs { force: true, ..self }
    }

    /// Cancels them, each as [`Jobs::cancel`] does, or by force as [`Jobs::force_cancel`].
    pub async fn cancel(self, reason: Option<Reason>) -> Result<ChangeJobBatchResponse, Error> {
        let force = self.force;
        self.change(JobAction::Cancel { reason, force }).await
    }

    /// Starts them again, each as [`Jobs::retry`] does.
    pub async fn retry(self) -> Result<ChangeJobBatchResponse, Error> {
        self.change(JobAction::Retry).await
    }

    /// Deletes them, each as [`Jobs::delete`] does, or by force as [`Jobs::force_delete`].
    pub async fn delete(self) -> Result<ChangeJobBatchResponse, Error> {
        let force = self.force;
        self.change(JobAction::Delete { force }).await
    }

    /// Follows the pages to the last, and puts their results together.
    async fn change(self, action: JobAction) -> Result<ChangeJobBatchResponse, Error> {
        let mut request = self.jobs.changes(self.selector, action, self.dry_run);
        let mut results = Vec::new();
        loop {
            let page = self.jobs.change_page(&request).await?;
            results.extend(page.results);
            request.cursor = page.next_cursor;
            if request.cursor.is_none() {
                return Ok(ChangeJobBatchResponse { results, next_cursor: None });
            }
        }
    }
}
