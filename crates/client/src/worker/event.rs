//! What happens to a worker, for logs and counters.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::job::Report;
use fencehold_core::job::{AttemptOutcome, ReportedAttempt};

use super::shared::WorkerShared;
use crate::error::Error;
use crate::job::Job;

/// What is called for each event.
pub(super) type OnEvent = Arc<dyn Fn(&WorkerEvent<'_>) + Send + Sync>;

/// Something that happened to a worker. See [`Worker::on_event`](crate::Worker::on_event).
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerEvent<'a> {
    /// No jobs can be claimed at the moment. The worker tries again. The event comes once, until a claim gets through.
    ClaimFailed {
        /// What went wrong.
        error: &'a Error,
    },
    /// The report of an attempt that ended could not be sent yet. The worker tries again, until another worker may have the
    /// job. The event comes at most once for an attempt.
    ReportDelayed {
        /// The job, as its handler had it.
        job: &'a Job,
        /// What went wrong.
        error: &'a Error,
    },
    /// An attempt ended, and its report is settled: the store has accepted or refused it, the worker has given up sending
    /// it, or there was nothing to report. It comes once for each attempt, in the order in which reports are settled. A job
    /// that was released before its handler began has it too, with the outcome `Released` and a duration of 0.
    AttemptEnded(&'a EndedAttempt),
}

/// How an attempt ended: what its worker reported, and what the store made of it.
///
/// `outcome` is the worker's side, `response` the store's. An attempt that completed under a claim that was lost in the
/// meantime has the outcome `Completed` and the response [`Error::Lost`]: its result does not count.
#[derive(Debug)]
#[non_exhaustive]
pub struct EndedAttempt {
    /// The job, as its handler had it.
    pub job: Job,
    /// What was reported: completed, failed, snoozed or released. `None`: nothing, for the claim was lost, or is left to
    /// expire.
    pub outcome: Option<AttemptOutcome>,
    /// How long its handler ran, from its start until it returned or was dropped.
    pub duration: Duration,
    /// The store's response to the report: how the job stands now. `Ok(None)`: nothing was reported. An error: the report
    /// was refused, or could not be sent while it could still count.
    pub response: Result<Option<ReportedAttempt>, Error>,
}

/// How an attempt ends of which this is said.
pub(super) fn ended_by(word: &Report) -> AttemptOutcome {
    match word {
        Report::Complete { .. } => AttemptOutcome::Completed,
        Report::Fail { .. } => AttemptOutcome::Failed,
        Report::Snooze { .. } => AttemptOutcome::Snoozed,
        _ => AttemptOutcome::Released,
    }
}

impl WorkerShared {
    /// Passes an event on. What is called is other people's code, and this may be the thread that renews.
    pub(super) fn report_to(&self, event: &WorkerEvent<'_>) {
        if let Some(on_event) = &self.on_event
            && catch_unwind(AssertUnwindSafe(|| on_event(event))).is_err()
        {
            tracing::error!("what is called for the events of a worker panicked");
        }
    }
}
