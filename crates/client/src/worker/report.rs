//! What a worker tells the store of the attempts that ended. Only what ends the worker waits for it.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::job::{AttemptReport, Report};

use super::WorkerCore;
use super::event::{EndedAttempt, WorkerEvent, ended_by};
use super::shared::{ReadyJob, WorkerShared};
use crate::error::{Error, LostCause};
use crate::job::{Job, last_try_ms};
use crate::report::{OnDelayed, QueuedReport};

impl WorkerCore {
    /// Has a word about an attempt sent that is over, and goes on.
    pub(super) fn say(&self, job: Job, word: Report, took_ms: u64) {
        let handed_back = matches!(word, Report::Release {});
        self.shared.count(|tally| {
            tally.unheard += 1;
            tally.handed_back += u64::from(handed_back);
            tally.finished += u64::from(!handed_back);
        });
        let unheard = UnansweredReport(Arc::clone(&self.shared));
        let attempt = job.attempt_ref();
        let until_ms = last_try_ms(&self.handle, &job.inner().holding);
        let delayed = self.shared.on_event.is_some().then(|| {
            let (shared, job) = (Arc::clone(&self.shared), job.clone());
            let delayed =
                move |error: &Error| shared.report_to(&WorkerEvent::ReportDelayed { job: &job, error });
            Box::new(delayed) as OnDelayed
        });
        let (connection, outcome) = (Arc::clone(self.connection()), Some(ended_by(&word)));
        let duration = Duration::from_millis(took_ms);
        let told = Box::new(move |answer: Result<_, Error>| {
            let holding = &job.inner().holding;
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
        // It is renewed no more: what still runs beside the handler has to stop.
        self.connection()
            .ended(&job.inner().holding, LostCause::NotRenewed { failure: None });
        let duration = Duration::from_millis(took_ms);
        let end = EndedAttempt { job, outcome: None, duration, response: Ok(None) };
        self.shared.report_to(&WorkerEvent::AttemptEnded(&end));
    }

    /// Releases jobs that were not begun.
    pub(super) fn hand_back(&self, jobs: Vec<ReadyJob>) {
        for ReadyJob { claimed, holding, .. } in jobs {
            self.say(self.job(claimed, holding), Report::Release {}, 0);
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
