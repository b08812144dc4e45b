//! What a handler gives back.

use std::time::Duration;

use fencehold_contract::job::Report;
use serde::Serialize;

use super::error::JobError;
use crate::json;
use crate::time::ms;

/// What came of an attempt, other than an error.
///
/// A handler that only ever completes need not know it: whatever it returns is the result.
///
/// ```
/// use std::time::Duration;
/// use fencehold::{Job, JobError, Outcome};
///
/// async fn poll(job: Job, build: String) -> Result<Outcome, JobError> {
///     # async fn is_ready(_: &str) -> bool { false }
///     if !is_ready(&build).await {
///         return Ok(job.snooze(Duration::from_secs(60))); // not a failure: look again in a minute
///     }
///     Outcome::complete(&build)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = fencehold::testing::TestJob::new("poll", "build-7").run(poll).await;
/// assert_eq!(run.snoozed(), Some(Duration::from_secs(60)));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an outcome says nothing until the handler returns it"]
pub struct Outcome {
    /// `None`: nothing is said.
    word: Option<Report>,
}

impl Outcome {
    /// The job is completed, with this result.
    pub fn complete(result: &(impl Serialize + ?Sized)) -> Result<Self, JobError> {
        let result = json::written("result", result)?;
        let result = (&*result != json::NOTHING).then_some(result);
        Ok(Outcome { word: Some(Report::Complete { result }) })
    }

    /// Put the job off. Counts as nothing: neither as a failure nor as a crash.
    pub fn snooze(wait: Duration) -> Self {
        Outcome { word: Some(Report::Snooze { delay_ms: ms(wait) }) }
    }

    /// Release the job, for the next free worker to run at once. Counts as nothing. A job that was asked to stop by
    /// [`cancel`](crate::Jobs::cancel) is then cancelled.
    pub fn release() -> Self {
        Outcome { word: Some(Report::Release {}) }
    }

    /// Report nothing, and renew no more: the claim expires, which counts as a crash. For work that could not be stopped, so
    /// that no other worker may begin before the claim has ended; and for a claim that is lost.
    pub fn let_expire() -> Self {
        Outcome { word: None }
    }

    pub(crate) fn into_report(self) -> Option<Report> {
        self.word
    }
}

/// What a handler may return beside an error: an [`Outcome`], or anything that can be written as JSON, which is then the
/// job's result.
pub trait IntoOutcome {
    /// The outcome that it is.
    fn into_outcome(self) -> Result<Outcome, JobError>;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome, JobError> {
        Ok(self)
    }
}

impl<T: Serialize> IntoOutcome for T {
    fn into_outcome(self) -> Result<Outcome, JobError> {
        Outcome::complete(&self)
    }
}
