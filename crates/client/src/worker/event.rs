//! What happens to a worker, for whoever logs or counts it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::job::Report;
use fencehold_core::job::{AttemptOutcome, ReportedAttempt};

use super::floor::Floor;
use crate::error::Error;
use crate::job::Job;

/// What is called for each event.
pub(super) type OnEvent = Arc<dyn Fn(&WorkerEvent<'_>) + Send + Sync>;

/// Something that happened to a worker. See [`Worker::on_event`](crate::Worker::on_event).
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerEvent<'a> {
    /// No jobs can be claimed at the moment. The worker tries again; this is said once until a claim gets through.
    ClaimFailed {
        /// What the store answered.
        error: &'a Error,
    },
    /// What is reported of an attempt that ended could not be sent yet. The worker tries again, until another worker may have
    /// the job; this is said once for an attempt.
    ReportDelayed {
        /// The job, as its handler had it.
        job: &'a Job,
        /// What the store answered.
        error: &'a Error,
    },
    /// An attempt ended, and the store has answered what was reported of it.
    AttemptEnded(&'a EndedAttempt),
}

/// How an attempt ended.
#[derive(Debug)]
#[non_exhaustive]
pub struct EndedAttempt {
    /// The job, as its handler had it.
    pub job: Job,
    /// What was reported. `None`: nothing, for the claim was lost, or is left to expire.
    pub reported: Option<AttemptOutcome>,
    /// How long its handler ran.
    pub took: Duration,
    /// What the store answered: how the job stands now. `None`: nothing was reported.
    pub answer: Result<Option<ReportedAttempt>, Error>,
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

impl Floor {
    /// Passes an event on. What is called is other people's code, and this may be the thread that renews.
    pub(super) fn tell(&self, event: &WorkerEvent<'_>) {
        if let Some(on_event) = &self.on_event
            && catch_unwind(AssertUnwindSafe(|| on_event(event))).is_err()
        {
            tracing::error!("what is called for the events of a worker panicked");
        }
    }
}
