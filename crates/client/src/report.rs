//! Reports of attempts, in batches: those that come while one call is on its way go with the next one.
//!
//! No attempt waits for another one's report, and a hundred completions cost one call. The handle's own thread sends them, one
//! call at a time. A report that cannot get through is kept and sent again until its time is up; the store takes the same
//! report twice.

use std::collections::VecDeque;
use std::sync::Arc;

use fencehold_contract::job::{AttemptRef, AttemptReport, Report};
use fencehold_core::job::ReportedAttempt;
use fencehold_core::limits::{CALL_BYTES_MAX, JOBS_PER_CALL_MAX};
use futures_channel::oneshot;

use crate::connection::{ConnectionInner, closed};
use crate::error::Error;
use crate::retry::may_pass;
use crate::wake::lock;

/// What an item weighs beside its bytes: ids, token, frame.
const ITEM_BYTES: usize = 128;

/// Told what became of a word.
pub(crate) type OnReported = Box<dyn FnOnce(Result<ReportedAttempt, Error>) + Send>;

/// Told that a word could not be sent yet.
pub(crate) type OnDelayed = Box<dyn FnOnce(&Error) + Send>;

/// A word that waits to be sent.
pub(crate) struct QueuedReport {
    pub(crate) report: AttemptReport,
    /// Until when it is tried.
    pub(crate) until_ms: u64,
    /// Called once, if the first try fails.
    pub(crate) delayed: Option<OnDelayed>,
    pub(crate) told: OnReported,
}

/// The words of one handle's attempts.
#[derive(Default)]
pub(crate) struct ReportQueue {
    waiting: VecDeque<QueuedReport>,
    /// A task sends them.
    sending: bool,
}

impl ConnectionInner {
    /// Has a word sent with the next call. Does not wait.
    pub(crate) fn say(self: &Arc<Self>, spoken: QueuedReport) {
        let mut inbox = lock(&self.reports);
        let is_progress = |spoken: &QueuedReport| matches!(spoken.report.report, Report::Progress { .. });
        // Of progress only the newest is of interest, unless something was said in between. Thousands of completions are not searched
        // for it.
        let of_attempt = |other: &&mut QueuedReport| other.report.attempt == spoken.report.attempt;
        let progress = is_progress(&spoken);
        match inbox.waiting.iter_mut().rev().take_while(|_| progress).find(of_attempt) {
            Some(older) if is_progress(older) => *older = spoken,
            _ => inbox.waiting.push_back(spoken),
        }
        if !std::mem::replace(&mut inbox.sending, true) {
            drop(inbox);
            self.spawn(send_all(Arc::clone(self)));
        }
    }

    /// Has a word sent, and waits for what becomes of it.
    pub(crate) async fn say_and_hear(
        self: &Arc<Self>,
        report: AttemptReport,
        until_ms: u64,
    ) -> Result<ReportedAttempt, Error> {
        let (sender, receiver) = oneshot::channel();
        // The caller may have gone.
        let told: OnReported = Box::new(move |answer| drop(sender.send(answer)));
        self.say(QueuedReport { report, until_ms, delayed: None, told });
        receiver.await.unwrap_or_else(|_| Err(closed()))
    }
}

/// Sends whatever there is, until there is nothing more.
async fn send_all(connection: Arc<ConnectionInner>) {
    let mut sender = ReportSender { connection: &connection, sent: Vec::new(), done: false };
    let mut failures = 0;
    while let Some(reports) = sender.take() {
        let answer = connection.send_job(0, |jobs, call| jobs.report(call, reports)).await;
        let batch = std::mem::take(&mut sender.sent);
        match answer {
            Ok(answers) => {
                failures = 0;
                let mut answers = answers.into_iter();
                for QueuedReport { report, told, .. } in batch {
                    let none =
                        || Error::OutcomeUnknown { message: "the store left a word unanswered".to_owned() };
                    let AttemptRef { job_id, token, .. } = report.attempt;
                    told(answers.next().ok_or_else(none).and_then(|answer| {
                        answer.map_err(|refusal| Error::attempt_refused(job_id, token, refusal))
                    }));
                }
            }
            Err(error) => {
                failures += 1;
                let pause_until_ms =
                    connection.now_ms().saturating_add(connection.retries.backoff_ms(failures));
                let again = may_pass(&error) && !connection.is_closed();
                let (mut kept, given_up): (Vec<_>, Vec<_>) =
                    batch.into_iter().partition(|spoken| again && pause_until_ms < spoken.until_ms);
                for QueuedReport { told, .. } in given_up {
                    told(Err(error.clone().into()));
                }
                for delayed in kept.iter_mut().filter_map(|spoken| spoken.delayed.take()) {
                    delayed(&error.clone().into());
                }
                if !kept.is_empty() {
                    sender.put_back(kept);
                    tracing::debug!(failures, %error, "what jobs have to say could not be sent, and is kept");
                    connection.timers.sleep_until(pause_until_ms).await;
                }
            }
        }
    }
}

/// The one who sends. Whatever way it ends, also by a panic of the store's code, the next word finds another.
struct ReportSender<'a> {
    connection: &'a Arc<ConnectionInner>,
    /// What is on its way.
    sent: Vec<QueuedReport>,
    done: bool,
}

impl ReportSender<'_> {
    /// As many words as one call may carry, to be sent. `None`: there are none, and this sender is no longer one.
    fn take(&mut self) -> Option<Vec<AttemptReport>> {
        let mut inbox = lock(&self.connection.reports);
        let (mut count, mut bytes) = (0, 0);
        for spoken in inbox.waiting.iter().take(JOBS_PER_CALL_MAX) {
            bytes += weight(&spoken.report.report);
            if count > 0 && bytes > CALL_BYTES_MAX {
                break;
            }
            count += 1;
        }
        if count == 0 {
            inbox.sending = false;
            self.done = true;
            return None;
        }
        self.sent = inbox.waiting.drain(..count).collect();
        Some(self.sent.iter().map(|spoken| spoken.report.clone()).collect())
    }

    /// Puts words back to where they stood.
    fn put_back(&self, reports: Vec<QueuedReport>) {
        let mut inbox = lock(&self.connection.reports);
        reports.into_iter().rev().for_each(|spoken| inbox.waiting.push_front(spoken));
    }
}

impl Drop for ReportSender<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let mut inbox = lock(&self.connection.reports);
        // Where the handle's thread itself ends, nothing is left to send with.
        let again = std::thread::panicking() && !inbox.waiting.is_empty();
        inbox.sending = again;
        drop(inbox);
        if again {
            self.connection.spawn(send_all(Arc::clone(self.connection)));
        }
        // Not sent again: it would panic again. The claims of these attempts are renewed no more.
        for QueuedReport { told, .. } in self.sent.drain(..).filter(|_| std::thread::panicking()) {
            told(Err(Error::OutcomeUnknown { message: "the store's code panicked".to_owned() }));
        }
    }
}

fn weight(word: &Report) -> usize {
    ITEM_BYTES
        + match word {
            Report::Complete { result } => result.as_ref().map_or(0, |result| result.len()),
            Report::Fail { error, .. } => error.len(),
            Report::Checkpoint { checkpoint: bytes } => bytes.len(),
            Report::Progress { progress: note } => note.len(),
            _ => 0,
        }
}
