//! What a worker says of the attempts that ended: to the store, and for logs and counters. Only what ends the worker waits for
//! the store's answer.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::job::{AttemptReport, Report};
use fencehold_core::job::{AttemptOutcome, ReportedAttempt};

use super::WorkerCore;
use super::shared::{ReadyJob, WorkerShared};
use crate::breaker::CircuitBreakerStats;
use crate::error::{Error, LostCause};
use crate::job::{Job, last_try_ms};
use crate::metrics;
use crate::report::{OnDelayed, QueuedReport};

/// What is called for each event.
pub(super) type OnEvent = Arc<dyn Fn(&WorkerEvent<'_>) + Send + Sync>;

/// Something that happened to a worker. See [`Worker::on_event`](crate::Worker::on_event).
#[derive(Debug)]
#[non_exhaustive]
pub enum WorkerEvent<'a> {
    /// No jobs can be claimed at the moment. The worker tries again. The event comes once, until a claim gets through.
    #[non_exhaustive]
    ClaimFailed {
        /// What went wrong.
        error: &'a Error,
    },
    /// The report of an attempt that ended could not be sent yet. The worker tries again, until another worker may have the
    /// job. The event comes at most once for an attempt.
    #[non_exhaustive]
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
    /// The circuit breaker of the worker's handle has changed its state: while it is open, no jobs are claimed, and what runs goes on.
    /// Changes that follow each other at once may be folded into one.
    CircuitBreakerChanged(&'a CircuitBreakerStats),
}

/// How an attempt ended: what its worker reported, and what the store made of it.
///
/// `outcome` is the worker's side, `response` the store's. An attempt that completed under a claim that was lost in the
/// meantime has the outcome `Completed` and the response [`Error::Lost`]: its result does not count.
#[derive(Clone, Debug)]
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

impl WorkerCore {
    /// Has a word about an attempt sent that is over, and goes on.
    pub(super) fn say(&self, job: Job, word: Report, took_ms: u64) {
        metrics::attempt_ended(job.queue(), job.kind(), Some(ended_by(&word)), took_ms);
        self.shared.count(|tally| {
            tally.unheard += 1;
            let ended = &mut tally.ended;
            *match ended_by(&word) {
                AttemptOutcome::Completed => &mut ended.completed,
                AttemptOutcome::Failed => &mut ended.failed,
                AttemptOutcome::Snoozed => &mut ended.snoozed,
                _ => &mut ended.released,
            } += 1;
        });
        let unheard = UnansweredReport(Arc::clone(&self.shared));
        let attempt = job.attempt_ref();
        let until_ms = last_try_ms(&self.handle, &job.attempt.holding);
        let delayed = self.shared.on_event.is_some().then(|| {
            let (shared, job) = (Arc::clone(&self.shared), job.clone());
            let delayed =
                move |error: &Error| shared.report_to(&WorkerEvent::ReportDelayed { job: &job, error });
            Box::new(delayed) as OnDelayed
        });
        let (connection, outcome) = (Arc::clone(self.connection()), Some(ended_by(&word)));
        let duration = Duration::from_millis(took_ms);
        let told = Box::new(move |answer: Result<_, Error>| {
            let holding = &job.attempt.holding;
            if let Err(error) = &answer {
                tracing::warn!(parent: &holding.span, %error, "what the job had to say was not taken");
            }
            // Renewed until here, so that no other worker had it meanwhile.
            connection.ended(holding, LostCause::Released);
            let end = EndedAttempt { job, outcome, duration, response: answer.map(Some) };
            unheard.0.report_to(&WorkerEvent::AttemptEnded(&end));
            drop(unheard);
        });
        let report = AttemptReport { attempt, report: word };
        self.connection().say(QueuedReport { report, until_ms, delayed, told });
    }

    /// Nothing is said of an attempt: it is over already, or its claim is left to expire.
    pub(super) fn say_nothing(&self, job: Job, took_ms: u64) {
        metrics::attempt_ended(job.queue(), job.kind(), None, took_ms);
        self.shared.count(|tally| tally.ended.lost += 1);
        // It is renewed no more: what still runs beside the handler has to stop.
        self.connection()
            .ended(&job.attempt.holding, LostCause::NotRenewed { failure: None });
        let duration = Duration::from_millis(took_ms);
        let end = EndedAttempt { job, outcome: None, duration, response: Ok(None) };
        self.shared.report_to(&WorkerEvent::AttemptEnded(&end));
    }

    /// Releases jobs that were not begun.
    pub(super) fn hand_back(&self, jobs: Vec<ReadyJob>) {
        for ReadyJob { claimed, holding, .. } in jobs {
            self.say(self.job(*claimed, holding), Report::Release {}, 0);
        }
    }
}

/// A word that the store has not answered yet.
struct UnansweredReport(Arc<WorkerShared>);

impl Drop for UnansweredReport {
    fn drop(&mut self) {
        self.0.count(|tally| tally.unheard -= 1);
    }
}
