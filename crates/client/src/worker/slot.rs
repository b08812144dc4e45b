//! A slot: a thread that runs one job after the other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use fencehold_contract::job::Report;
use fencehold_core::lease::LeaseOutcome;
use tracing::Instrument;

use super::WorkerCore;
use super::event::ended_by;
use super::handler::{HandlerResult, RunningHandler};
use super::shared::ReadyJob;
use crate::error::{LostCause, ShownTime};
use crate::holding::Holding;
use crate::job::{Job, JobError};
use crate::wake::{block_on, lock};
use crate::watch::LeaseState;

/// What the threads of slots run within.
pub(super) type Within = Arc<dyn Fn(&mut dyn FnMut()) + Send + Sync>;

/// The context of the Tokio runtime that this is called in.
pub(super) fn runtime() -> Option<Within> {
    let runtime = tokio::runtime::Handle::try_current().ok()?;
    Some(Arc::new(move |slot| {
        let _entered = runtime.enter();
        slot();
    }))
}

/// How a handler's run ended.
enum RunEnd {
    /// By itself, or by a panic.
    Ended(HandlerResult),
    /// The claim was lost, and the handler was dropped.
    Lost(LostCause),
    /// The worker, or the operator who called the job off, would not wait any longer, and the handler was dropped.
    Dropped,
}

impl WorkerCore {
    /// Runs jobs until there are none.
    pub(super) fn run_jobs(&self) {
        while let Some(ready) = self.shared.take() {
            self.work(ready);
        }
    }

    pub(super) fn work(&self, ready: ReadyJob) {
        let ReadyJob { mut claimed, holding, since_ms } = ready;
        // A claim that is over, or that may soon be, is no ground to begin on, nor is a worker that waits for nothing more.
        if holding.look().state != LeaseState::Held || self.shared.is_stopping() {
            self.hand_back(vec![ReadyJob { claimed, holding, since_ms }]);
            self.shared.count(|tally| tally.running -= 1);
            return;
        }
        let payload = std::mem::take(&mut claimed.payload);
        let job = self.job(claimed, Arc::clone(&holding));
        lock(&self.shared.running).insert(holding.serial, job.clone());
        let span = tracing::info_span!(
            parent: &holding.span, "job", queue = %job.queue(), kind = %job.kind(), attempt = job.attempt(), traceparent = job.traceparent(),
            outcome = tracing::field::Empty
        );
        let ended = span.clone();
        let began_ms = self.handle.connection.now_ms();
        let handler = self.terms.handlers.get(job.kind());
        let run = match handler.and_then(|handler| guarded(|| handler(job.clone(), payload))) {
            Ok(RunningHandler::Future(future)) => self.drive(&holding, Box::pin(future.instrument(span))),
            Ok(RunningHandler::Call(call)) => RunEnd::Ended(guarded(|| span.in_scope(call)).flatten()),
            Err(error) => RunEnd::Ended(Err(error)),
        };
        let work_ms = self.handle.connection.now_ms().saturating_sub(began_ms);
        lock(&self.shared.prefetch_pace).saw_work(work_ms);
        // Where it was ended already, there is nothing to add.
        if lock(&self.shared.running).remove(&holding.serial).is_some() {
            let word = word(run, &holding);
            log(&ended, &job, word.as_ref(), work_ms);
            match word {
                Some(word) => self.say(job, word, work_ms),
                None => self.say_nothing(job, work_ms),
            }
        }
        self.shared.count(|tally| tally.running -= 1);
    }

    /// Drives a handler to its end, unless its claim is lost or it is not waited for any longer. Then it is dropped.
    fn drive(
        &self,
        holding: &Holding,
        mut future: Pin<Box<dyn Future<Output = HandlerResult> + Send + '_>>,
    ) -> RunEnd {
        let mut lost = pin!(holding.lost());
        let mut stopped = pin!(self.shared.stopping());
        let mut overdue = pin!(self.cancelled_for_too_long(holding));
        let run = block_on(std::future::poll_fn(|context| {
            // Looked at before the work goes on: time may have passed.
            holding.settle();
            if let Poll::Ready(why) = lost.as_mut().poll(context) {
                return Poll::Ready(RunEnd::Lost(why));
            }
            if stopped.as_mut().poll(context).is_ready() || overdue.as_mut().poll(context).is_ready() {
                return Poll::Ready(RunEnd::Dropped);
            }
            let polled = guarded(|| future.as_mut().poll(context));
            polled.unwrap_or_else(|panic| Poll::Ready(Err(panic))).map(RunEnd::Ended)
        }));
        // Other people's code runs in this drop too.
        guarded(|| drop(future)).map_or_else(|panic| RunEnd::Ended(Err(panic)), |()| run)
    }

    /// Done when a job was called off and its handler has had its time to stop.
    async fn cancelled_for_too_long(&self, holding: &Holding) {
        let Some(limit_ms) = self.terms.cancel_ms else { return std::future::pending().await };
        // From when it was known, and not from when this was looked at: the handler may have heard of it before.
        let Some(since_ms) = holding.called_off().await else { return std::future::pending().await };
        self.connection().timers.sleep_until(since_ms.saturating_add(limit_ms)).await;
    }
}

/// Says how an attempt ended: in its span, and in a line that names the job by itself.
fn log(span: &tracing::Span, job: &Job, word: Option<&Report>, took_ms: u64) {
    let outcome = word.map_or_else(|| "over".to_owned(), |word| ended_by(word).to_string());
    span.record("outcome", &outcome);
    let (id, queue, kind, attempt) = (job.id(), job.queue(), job.kind(), job.attempt());
    match word {
        Some(Report::Fail { error, permanent: for_good, .. }) => {
            tracing::warn!(parent: span, job = %id, %queue, %kind, attempt, took_ms, for_good, error, "an attempt failed");
        }
        _ => {
            tracing::debug!(parent: span, job = %id, %queue, %kind, attempt, took_ms, outcome, "an attempt ended");
        }
    }
}

/// What to say about an attempt; `None`: nothing, for it is over already and others decide.
fn word(run: RunEnd, holding: &Holding) -> Option<Report> {
    match run {
        RunEnd::Ended(Ok(outcome)) => outcome.into_report(),
        RunEnd::Ended(Err(error)) => error.into_report(),
        RunEnd::Lost(LostCause::Ended {
            outcome: Some(LeaseOutcome::AgedOut), current_token: None, ..
        }) => {
            let limit = ShownTime(Duration::from_millis(holding.granted.max_age_ms.unwrap_or(0)));
            let after = ShownTime(Duration::from_millis(holding.age_ms()));
            let why = "and it must have stopped before another worker may begin";
            let text = format!("the attempt was ended after {after}: its time limit is {limit}, {why}");
            JobError::new(text).into_report()
        }
        // Where the claim is lost by the holder's own reckoning, that is ahead of the store's: it may be live still. The
        // work has stopped, so another worker may begin at once.
        RunEnd::Dropped
        | RunEnd::Lost(
            LostCause::NotRenewed { .. }
            | LostCause::Ended { outcome: Some(LeaseOutcome::Yielded), current_token: None, .. },
        ) => Some(Report::Release {}),
        RunEnd::Lost(_) => None,
    }
}

/// Runs other people's code: where it panics, the attempt has failed.
fn guarded<T>(run: impl FnOnce() -> T) -> Result<T, JobError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let said = panic.downcast_ref::<&str>().copied();
        let said = said.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
        JobError::new(format!("the handler panicked: {}", said.unwrap_or("no words")))
    })
}
