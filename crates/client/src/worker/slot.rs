//! A slot: one job that runs, from its start to its end. An async handler is a task of the caller's runtime; one that blocks has a
//! thread.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use fencehold_contract::job::Report;
use fencehold_core::job::JobKind;
use tracing::Instrument;

use super::WorkerCore;
use super::drive::{RunEnd, drive, guarded, report_of};
use super::event::ended_by;
use super::handler::{HandlerResult, RunningHandler};
use super::shared::{NextJob, ReadyJob, WorkerPhase};
use crate::error::Error;
use crate::holding::Holding;
use crate::job::Job;
use crate::metrics;
use crate::time::first;
use crate::wake::lock;
use crate::watch::LeaseState;

/// A slot that is to be filled when its task runs.
struct StartingSlot {
    core: WorkerCore,
    runs: bool,
}

/// A job that has a slot. Its end gives the slot to the next.
pub(super) struct BegunJob {
    core: WorkerCore,
    stage: Stage,
}

/// How far an attempt has come.
enum Stage {
    /// It is to be begun.
    Ready(ReadyJob),
    /// Its handler runs, since this moment.
    Running(Job, u64),
    /// There is nothing left to report.
    Ended,
}

impl WorkerCore {
    /// Begins the jobs that there is a slot for.
    pub(super) fn dispatch(&self) {
        let needs_thread = |kind: &JobKind| self.terms.handlers.block(kind) || self.terms.runtime.is_none();
        while let Some(next) = self.shared.start_next(self.terms.concurrency, needs_thread) {
            match (next, &self.terms.runtime) {
                (NextJob::InTask, Some(runtime)) => {
                    drop(runtime.spawn(StartingSlot { core: self.clone(), runs: false }.work()));
                }
                (NextJob::InTask, None) => self.shared.abandon_slot(),
                (NextJob::OnThread(ready), _) => {
                    if !self.run_on_thread(ready) {
                        return;
                    }
                }
            }
        }
    }

    /// False: no thread can be had, and the job is on the shelf again.
    fn run_on_thread(&self, ready: ReadyJob) -> bool {
        match self.shared.threads.run(self, ready) {
            Ok(()) => true,
            Err(ready) => {
                self.hand_back(self.shared.unbegin(ready));
                false
            }
        }
    }

    /// The runtime that handlers run in has ended: nothing more is claimed or begun.
    fn runtime_ended(&self) {
        self.shared.count(|tally| {
            let message = "the runtime in which the worker was started has ended".to_owned();
            tally.failure.get_or_insert(Error::Unavailable { message });
        });
        self.shared.advance(WorkerPhase::Stopping);
        self.hand_back(self.shared.close());
    }

    /// Drives a handler to its end.
    async fn drive(
        &self,
        holding: &Holding,
        mut future: Pin<Box<dyn Future<Output = HandlerResult> + Send + '_>>,
    ) -> RunEnd<HandlerResult> {
        let not_waited_for = first(self.shared.stopping(), self.cancelled_for_too_long(holding));
        let handler = poll_fn(|context| {
            guarded(|| future.as_mut().poll(context)).unwrap_or_else(|panic| Poll::Ready(Err(panic)))
        });
        let run = drive(holding, not_waited_for, handler).await;
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

impl StartingSlot {
    async fn work(mut self) {
        self.runs = true;
        let Some(ready) = self.core.shared.fill_slot() else { return };
        // The job that it was for may have been released, and this one have come in its place.
        if self.core.terms.handlers.block(&ready.claimed.kind) {
            self.core.run_on_thread(ready);
        } else {
            BegunJob::new(&self.core, ready).work().await;
        }
    }
}

impl Drop for StartingSlot {
    fn drop(&mut self) {
        if !self.runs {
            self.core.shared.abandon_slot();
            self.core.runtime_ended();
        }
    }
}

impl BegunJob {
    pub(super) fn new(core: &WorkerCore, ready: ReadyJob) -> Self {
        BegunJob { core: core.clone(), stage: Stage::Ready(ready) }
    }

    /// Runs it. Where its handler blocks, so does this.
    pub(super) async fn work(mut self) {
        let Stage::Ready(ReadyJob { holding, .. }) = &self.stage else { return };
        let holding = Arc::clone(holding);
        // A claim that is over, or that may soon be, is no ground to begin on, nor is a worker that waits for nothing more.
        if holding.look().state != LeaseState::Held || self.core.shared.is_stopping() {
            return self.give_back();
        }
        let Stage::Ready(ReadyJob { mut claimed, .. }) = std::mem::replace(&mut self.stage, Stage::Ended)
        else {
            return;
        };
        let payload = std::mem::take(&mut claimed.payload);
        let job = self.core.job(*claimed, Arc::clone(&holding));
        metrics::attempt_started(job.queue(), job.kind());
        lock(&self.core.shared.running).insert(holding.serial, job.clone());
        let began_ms = self.core.connection().now_ms();
        self.stage = Stage::Running(job.clone(), began_ms);
        let span = tracing::info_span!(
            parent: &holding.span, "job", queue = %job.queue(), kind = %job.kind(), attempt = job.attempt(), traceparent = job.traceparent(),
            outcome = tracing::field::Empty
        );
        let ended = span.clone();
        let handlers = &self.core.terms.handlers;
        let run = match guarded(|| handlers.run(job.clone(), payload)).flatten() {
            Ok(RunningHandler::Future(future)) => {
                self.core.drive(&holding, Box::pin(future.instrument(span))).await
            }
            Ok(RunningHandler::Call(call)) => RunEnd::Ended(guarded(|| span.in_scope(call)).flatten()),
            Err(error) => RunEnd::Ended(Err(error)),
        };
        let work_ms = self.core.connection().now_ms().saturating_sub(began_ms);
        lock(&self.core.shared.prefetch_pace).saw_work(work_ms);
        self.stage = Stage::Ended;
        // Where it was ended already, there is nothing to add.
        if lock(&self.core.shared.running).remove(&holding.serial).is_some() {
            let report = report_of(run, &holding);
            // What follows the program's spans is its own code.
            let _ = guarded(|| log(&ended, &job, report.as_ref(), work_ms));
            match report {
                Some(report) => self.core.say(job, report, work_ms),
                None => self.core.say_nothing(job, work_ms),
            }
        }
    }

    /// Releases what has not ended.
    fn give_back(&mut self) {
        match std::mem::replace(&mut self.stage, Stage::Ended) {
            Stage::Ready(ready) => self.core.hand_back(vec![ready]),
            Stage::Running(job, began_ms) => {
                let serial = job.attempt.holding.serial;
                if lock(&self.core.shared.running).remove(&serial).is_some() {
                    let work_ms = self.core.connection().now_ms().saturating_sub(began_ms);
                    self.core.say(job, Report::Release {}, work_ms);
                }
            }
            Stage::Ended => {}
        }
    }
}

impl Drop for BegunJob {
    fn drop(&mut self) {
        let is_over = matches!(self.stage, Stage::Ended);
        self.give_back();
        self.core.shared.count(|tally| tally.running -= 1);
        if is_over || std::thread::panicking() {
            self.core.dispatch();
        } else {
            // A task is dropped when its runtime ends: the next one would fare no better.
            self.core.runtime_ended();
        }
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
