//! What a worker tells the store of the attempts that ended. Only what ends the worker waits for it.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::job::{AttemptReport, Report};

use super::event::{EndedAttempt, WorkerEvent, ended_by};
use super::shared::{ReadyJob, WorkerShared};
use crate::error::{Error, LostCause};
use crate::job::{AttemptReporter, Job, last_try_ms};
use crate::renewal::RenewalHandle;
use crate::report::{OnDelayed, QueuedReport};
use crate::wake::lock;

impl WorkerShared {
    /// Has a word about an attempt sent that is over, and goes on.
    pub(super) fn say(self: &Arc<Self>, handle: &Arc<RenewalHandle>, job: Job, word: Report, took_ms: u64) {
        let handed_back = matches!(word, Report::Release {});
        self.count(|tally| {
            tally.unheard += 1;
            tally.handed_back += u64::from(handed_back);
            tally.finished += u64::from(!handed_back);
        });
        let unheard = UnansweredReport(Arc::clone(self));
        let attempt = job.attempt_ref();
        let until_ms = last_try_ms(handle, &job.inner().holding);
        let delayed = self.on_event.is_some().then(|| {
            let (shared, job) = (Arc::clone(self), job.clone());
            let delayed =
                move |error: &Error| shared.report_to(&WorkerEvent::ReportDelayed { job: &job, error });
            Box::new(delayed) as OnDelayed
        });
        let (connection, reported) = (Arc::clone(&handle.connection), ended_by(&word));
        let told = Box::new(move |answer: Result<_, Error>| {
            let holding = &job.inner().holding;
            if let Err(error) = &answer {
                tracing::warn!(parent: &holding.span, %error, "what the job had to say was not taken");
            }
            // Renewed until here, so that no other worker had it meanwhile.
            lock(&connection.renewals).remove(holding.serial);
            holding.lose(LostCause::Released);
            let end = EndedAttempt {
                job,
                outcome: Some(reported),
                duration: Duration::from_millis(took_ms),
                response: answer.map(Some),
            };
            unheard.0.report_to(&WorkerEvent::AttemptEnded(&end));
            drop(unheard);
        });
        handle.connection.say(QueuedReport {
            report: AttemptReport { attempt, report: word },
            until_ms,
            delayed,
            told,
        });
    }

    /// Nothing is said of an attempt: it is over already, or its claim is left to expire.
    pub(super) fn say_nothing(&self, handle: &RenewalHandle, job: Job, took_ms: u64) {
        let holding = &job.inner().holding;
        lock(&handle.connection.renewals).remove(holding.serial);
        // It is renewed no more: what still runs beside the handler has to stop.
        holding.lose(LostCause::NotRenewed { failure: None });
        let duration = Duration::from_millis(took_ms);
        self.report_to(&WorkerEvent::AttemptEnded(&EndedAttempt {
            job,
            outcome: None,
            duration,
            response: Ok(None),
        }));
    }

    /// Releases jobs that were not begun.
    pub(super) fn hand_back(self: &Arc<Self>, handle: &Arc<RenewalHandle>, jobs: Vec<ReadyJob>) {
        for ReadyJob { claimed, holding, .. } in jobs {
            let reporter = AttemptReporter::Store(Arc::clone(handle));
            let job = Job::new(claimed, holding, reporter, Some(Arc::clone(self)));
            self.say(handle, job, Report::Release {}, 0);
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
