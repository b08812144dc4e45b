//! `fencehold work`: jobs, each as one run of a command.
//!
//! It is one handler of the library's worker, which claims, renews, reports, resends and drains. The handler runs the
//! command under a watchdog that knows every deadline of the claim; the *verdict* is what the end of the command means for
//! its job. A thread writes, so that a reader who does not read stops no renewal.
//!
//! Deliberately absent: claims, deadlines, renewals and reports (the library's), and rules (the store's).

mod checkpoint_file;
mod command;
mod handler;
mod job_line;
mod outcome;
mod output_thread;

use std::ffi::{OsStr, OsString};
use std::future::{pending, ready};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use fencehold::{Drained, Error, RunningWorker, Worker, WorkerEvent, blocking};
use fencehold_core::limits::{DELAY_MS_MAX, TTL_MS_MIN};
use fencehold_core::{Owner, ttl};
use rustix::fs::{Access, access};
use rustix::process::Signal;
use serde_json::value::RawValue;

use super::job::{Source, parse_source};
use crate::context::{Context, CreateStore, OpenStore};
use crate::duration::{parse_ms, show_ms};
use crate::exit_code::{self, ExitStatus};
use crate::failure::Failure;
use crate::identity;
use crate::process::{Signals, Watchdog, grace_ms, pass_token};
use crate::verb::VerbResult;
use checkpoint_file::CheckpointFiles;
use handler::{CommandHandler, StartFailures};
use job_line::JobLines;
use outcome::SNOOZE_CODE;
use output_thread::OutputThread;

const MORE: &str = "\
Each job is one run of the command, with the payload on its stdin and FENCEHOLD_JOB_ID, FENCEHOLD_TOKEN, \
FENCEHOLD_ATTEMPT, FENCEHOLD_QUEUE, FENCEHOLD_KIND, FENCEHOLD_IDEMPOTENCY_KEY (the same for every attempt) and, where \
the job has one, TRACEPARENT in its environment. How it ends is what comes of the job:

  0      completed; stdout is the result (as it is if it is JSON, else as a JSON text)
  75     put off (--snooze), which counts as nothing
  other  failed, with the end of stderr as the error; tried again by the job's policy

FENCEHOLD_CHECKPOINT_FILE names a file with the checkpoint that an earlier attempt left; it is empty if there is none. To \
leave one, write another file beside it and rename that (mv): it is stored at once, and at the latest before the job is \
reported. A file that is written in place is not taken, since it may be half of a checkpoint. The limit is 256 KiB.

The command is ended (TERM, then KILL) when its job is cancelled or must yield, and by its watchdog before the claim can \
be given to another worker, also if this process is stopped or killed. What it leaves behind in its process group is \
ended too. A command that becomes another user (sudo) cannot be ended from here: run this process as that user. TERM, INT, HUP or QUIT end this process: it claims no more, lets the commands go on for --drain-timeout, \
then ends them and releases their jobs; a second signal does that at once.

A line for each job is printed on stdout; what the commands write to stderr is passed on.";

/// Run a command for each job of a queue
#[derive(Debug, clap::Args)]
#[command(after_help = more(), before_help = "\
# The payload is on stdin, what the command prints is the job's result
fencehold work --queue emails -- ./send-email

# Eight at a time; three of emails to one of reports while both have jobs
fencehold work --queue emails=3 --queue reports --concurrency 8 -- ./do-job

# Work off what is there, and stop
fencehold work --queue emails --until-empty -- ./send-email

# Go on where an attempt that was killed had left off
fencehold work --queue exports -- sh -c '
  row=$(cat \"$FENCEHOLD_CHECKPOINT_FILE\")
  while [ \"${row:=0}\" -lt 1000 ]; do
    row=$((row + 1)); ./export-row \"$row\" || exit
    echo \"$row\" >\"$FENCEHOLD_CHECKPOINT_FILE.new\"
    mv \"$FENCEHOLD_CHECKPOINT_FILE.new\" \"$FENCEHOLD_CHECKPOINT_FILE\"
  done'")]
pub(crate) struct Args {
    /// Queue to work on, and its share among several (repeatable)
    #[arg(long, value_name = "QUEUE[=WEIGHT]", required = true, value_parser = parse_source)]
    queue: Vec<Source>,
    /// How many commands at once
    #[arg(long, value_name = "N", default_value_t = 1, allow_hyphen_values = true)]
    concurrency: usize,
    /// How long a claim lasts if this process dies; else it is renewed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_ms, allow_hyphen_values = true)]
    ttl: u64,
    /// What a command gets between TERM and KILL [default: a quarter of the ttl, 10s at most]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    grace: Option<u64>,
    /// How long to put off a job whose command exits with 75
    #[arg(long, value_name = "DURATION", default_value = "1m", value_parser = parse_ms, allow_hyphen_values = true)]
    snooze: u64,
    /// How long commands may go on after a signal to stop; then they are ended
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_ms, allow_hyphen_values = true)]
    drain_timeout: u64,
    /// Stop when no job is ready
    #[arg(long)]
    until_empty: bool,
    /// Who works [default: user@host/pid]
    #[arg(long)]
    owner: Option<Owner>,
    /// Let the command inherit the access token, also that in the store's URL
    #[arg(long)]
    pass_access_token: bool,
    #[command(flatten)]
    create: CreateStore,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    command: Vec<OsString>,
}

fn more() -> String {
    debug_assert!(MORE.contains(&format!("{SNOOZE_CODE} ")));
    format!("{MORE}\n\n{}", exit_code::table())
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        // Validate before creating the store.
        ttl::check(self.ttl, TTL_MS_MIN)?;
        if self.pass_access_token {
            pass_token();
        }
        if self.concurrency == 0 || self.concurrency > Worker::CONCURRENCY_MAX {
            let most = Worker::CONCURRENCY_MAX;
            return Err(Failure::usage(format!("--concurrency <N>: it takes 1 to {most}")));
        }
        if self.snooze > DELAY_MS_MAX {
            return Err(Failure::usage("--snooze <DURATION>: the limit is 365 days"));
        }
        let grace_ms = grace_ms(self.grace, self.ttl)?;
        let owner = self.owner.clone().map_or_else(identity::ourselves, Ok)?;
        find(&self.command[0])?;
        let mut signals = Signals::listen()
            .map_err(|error| Failure::failed(format!("signals cannot be heard: {error}")))?;
        let store = context.open(self.create)?;
        let thread = OutputThread::start()
            .map_err(|error| Failure::failed(format!("a thread cannot be started: {error}")))?;
        let lines = Arc::new(JobLines::new(context.output, thread.writer()));
        let outcome = store
            .closing(async |store| {
                store.jobs()?;
                self.work(store, &owner, grace_ms, lines, &mut signals).await
            })
            .await;
        thread.finish();
        outcome
    }

    /// Works until a signal stops it, or it cannot go on. When this returns no command runs any more.
    async fn work(
        self,
        store: &OpenStore,
        owner: &Owner,
        grace_ms: u64,
        lines: Arc<JobLines>,
        signals: &mut Signals,
    ) -> VerbResult {
        let drain_ms = self.drain_timeout;
        let library = store.library().await?;
        let mut worker = library
            .worker()
            .owner(owner)
            .ttl(Duration::from_millis(self.ttl))
            .concurrency(self.concurrency)
            // A command takes a while: a job that is claimed ahead of it would only be kept from others.
            .prefetch(0)
            .drain_timeout(Duration::from_millis(drain_ms))
            // A command that is asked to end does, or is killed.
            .stop_timeout(Duration::MAX);
        for (queue, weight) in &self.queue {
            worker = worker.weighted_queue(queue, *weight);
        }
        if self.until_empty {
            worker = worker.until_empty();
        }
        let watchdog = Watchdog::default();
        // It begins while jobs are claimed.
        let begins = watchdog.clone();
        tokio::spawn(async move { begins.ensure().await });
        let handler = CommandHandler {
            words: self.command,
            grace_ms,
            watchdog: watchdog.clone(),
            snooze: Duration::from_millis(self.snooze),
            lines: Arc::clone(&lines),
            unstarted: StartFailures::default(),
            checkpoints: CheckpointFiles::default(),
            is_without_files: AtomicBool::default(),
        };
        let told = Arc::clone(&lines);
        let worker = worker
            .on_event(move |event| match event {
                WorkerEvent::ClaimFailed { error, .. } => {
                    told.note(&format!("no jobs can be claimed at the moment: {error}; trying again"));
                }
                WorkerEvent::ReportDelayed { job, error, .. } => told.note(&format!(
                    "job {}: what came of it cannot be reported at the moment: {error}; trying again (after a signal to stop, too, \
                     unless another one comes)",
                    job.id()
                )),
                WorkerEvent::AttemptEnded(end) => told.show(end),
                WorkerEvent::CircuitBreakerChanged(stats) => told.show_breaker(stats),
                _ => {}
            })
            .handle_any_blocking(move |job: blocking::Job, payload: Box<RawValue>| handler.handle(job.as_async(), payload.get()));
        let drained = match worker.start() {
            Ok(running) => until_stopped(running, drain_ms, &lines, signals).await,
            Err(error) => Err(error),
        };
        watchdog.dismiss().await;
        library.close().await;
        drained.map(drop).map_err(|error| Failure::of_library(error, &store.name))
    }
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

/// Whether the command is there at all: a slip of the pen must not cost every job an attempt.
fn find(program: &OsStr) -> Result<(), Failure> {
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.as_bytes().contains(&b'/') {
        let path = Path::new(program);
        let (exit, what) = match path.exists() {
            true if runs(path) => return Ok(()),
            true => (ExitStatus::CannotRun, "cannot be executed"),
            false => (ExitStatus::NotFound, "was not found"),
        };
        return Err(Failure::new(exit, format!("{} {what}", path.display())));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| runs(&directory.join(program))) {
        return Ok(());
    }
    Err(Failure::new(ExitStatus::NotFound, format!("{} was not found in PATH", program.display()))
        .with_next("No job was claimed."))
}
