//! `fencehold work`: jobs, each as one run of a command.
//!
//! It is one handler of the library's worker, which claims, renews, reports, resends and drains. The handler runs the
//! command under a watchdog that knows every deadline of the claim; the *verdict* is what the end of the command means for
//! its job. A thread writes, so that a reader who does not read stops no renewal.
//!
//! Deliberately absent: claims, deadlines, renewals and reports (the library's), and rules (the store's).

mod command;
mod handler;
mod job_line;
mod outcome;
mod output_thread;

use std::ffi::OsString;
use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use fencehold::{Drained, Error, RunningWorker, WorkerEvent};
use fencehold_contract::job::QueueWeight;
use fencehold_core::Owner;
use rustix::process::Signal;
use serde_json::value::RawValue;

use crate::context::OpenStore;
use crate::duration::show_ms;
use crate::failure::Failure;
use crate::output::Output;
use crate::process::Signals;
use handler::{CommandHandler, StartFailures};
use job_line::JobLines;
pub(crate) use outcome::SNOOZE_CODE;
pub(crate) use output_thread::OutputThread;

/// What to work on, and how.
#[derive(Clone, Debug)]
pub(crate) struct WorkPlan {
    pub(crate) queues: Vec<QueueWeight>,
    /// How many commands at once.
    pub(crate) concurrency: usize,
    pub(crate) owner: Owner,
    pub(crate) ttl: Duration,
    /// What a command gets between TERM and KILL.
    pub(crate) grace_ms: u64,
    /// For how long a job is put off whose command asks for that.
    pub(crate) snooze: Duration,
    /// How long running commands may go on after a request to stop.
    pub(crate) drain_ms: u64,
    /// Stop when no job is ready.
    pub(crate) until_empty: bool,
    /// The command and its arguments.
    pub(crate) words: Vec<OsString>,
}

/// Works until a signal stops it, or it cannot go on. When this returns no command runs any more.
pub(crate) async fn work(
    plan: WorkPlan,
    store: &OpenStore,
    output: Output,
    thread: &OutputThread,
    signals: &mut Signals,
) -> Result<(), Failure> {
    let lines = Arc::new(JobLines::new(output, thread.writer()));
    let drain_ms = plan.drain_ms;
    let library = store.library().await?;
    let mut worker = library
        .worker()
        .owner(&plan.owner)
        .ttl(plan.ttl)
        .concurrency(plan.concurrency)
        // A command takes a while: a job that is claimed ahead of it would only be kept from others.
        .prefetch(0)
        .drain_timeout(Duration::from_millis(drain_ms))
        // A command that is asked to end does, or is killed.
        .stop_timeout(Duration::MAX);
    for (queue, weight) in &plan.queues {
        worker = worker.queue(queue, *weight);
    }
    if plan.until_empty {
        worker = worker.until_empty();
    }
    let handler = CommandHandler { plan, lines: Arc::clone(&lines), unstarted: StartFailures::default() };
    let told = Arc::clone(&lines);
    let worker = worker
        .on_event(move |event| match event {
            WorkerEvent::ClaimFailed { error } => {
                told.note(&format!("no jobs can be claimed at the moment: {error}; trying again"));
            }
            WorkerEvent::ReportDelayed { job, error } => told.note(&format!(
                "job {}: what came of it cannot be reported at the moment: {error}; trying again (after a signal to stop, too, \
                 unless another one comes)",
                job.id()
            )),
            WorkerEvent::AttemptEnded(end) => told.show(end),
            _ => {}
        })
        .handle_any_blocking(move |job, payload: Box<RawValue>| handler.handle(&job, payload.get()));
    let drained = match worker.start() {
        Ok(running) => until_stopped(running, drain_ms, &lines, signals).await,
        Err(error) => Err(error),
    };
    library.close().await;
    drained.map(drop).map_err(|error| Failure::of_library(error, &store.name))
}

/// The first signal lets commands go on for a while; a second one ends them, and so does a store that gives no more jobs.
async fn until_stopped(
    running: RunningWorker,
    drain_ms: u64,
    lines: &JobLines,
    signals: &mut Signals,
) -> Result<Drained, Error> {
    tokio::select! {
        () = running.until(pending::<()>()) => return running.drain_until(ready(())).await,
        () = asked_to_stop(signals) => {}
    }
    let count = running.running();
    if drain_ms > 0 && count > 0 {
        // By the thread that writes: what is supervised here must not wait for a reader.
        lines.note(&format!(
            "no more jobs are claimed; {count} go on for up to {} (another signal hands them back at once)",
            show_ms(drain_ms)
        ));
    }
    running.drain_until(asked_to_stop(signals)).await
}

async fn asked_to_stop(signals: &mut Signals) {
    while matches!(signals.next().await, Signal::USR1 | Signal::USR2) {}
}
