//! `fencehold work`: a command for each job of a queue.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use fencehold::Worker;
use fencehold_core::limits::{DELAY_MS_MAX, TTL_MS_MIN};
use fencehold_core::{Owner, ttl};
use rustix::fs::{Access, access};

use super::job::{Source, parse_source};
use crate::context::{Context, CreateStore};
use crate::duration::parse_ms;
use crate::exit_code::{self, ExitStatus};
use crate::failure::Failure;
use crate::identity;
use crate::process::{Signals, grace_ms};
use crate::verb::{DONE, VerbResult};
use crate::work::{OutputThread, SNOOZE_CODE, WorkPlan, work};

const EXAMPLES: &str = "\
Examples:
  # The payload is on stdin, what the command prints is the job's result
  fencehold work --queue emails -- ./send-email

  # Eight at a time; three of emails to one of reports while both have jobs
  fencehold work --queue emails=3 --queue reports --concurrency 8 -- ./do-job

  # Work off what is there, and stop
  fencehold work --queue emails --until-empty -- ./send-email
";

const MORE: &str = "\
Each job is one run of the command, with the payload on its stdin and FENCEHOLD_JOB_ID, FENCEHOLD_TOKEN, \
FENCEHOLD_ATTEMPT, FENCEHOLD_QUEUE, FENCEHOLD_KIND, FENCEHOLD_IDEMPOTENCY_KEY (the same for every attempt) and, where \
the job has one, TRACEPARENT in its environment. How it ends is what comes of the job:

  0      completed; stdout is the result (as it is if it is JSON, else as a JSON text)
  75     put off (--snooze), which counts as nothing
  other  failed, with the end of stderr as the error; tried again by the job's policy

The command is ended (TERM, then KILL) when its job is cancelled or must yield, and by its watchdog before the claim can \
be given to another worker, also if this process is stopped or killed. What it leaves behind in its process group is \
ended too. A command that becomes another user (sudo) cannot be ended from here: run this process as that user. TERM, INT, HUP or QUIT end this process: it claims no more, lets the commands go on for --drain-timeout, \
then ends them and releases their jobs; a second signal does that at once.

A line for each job is printed on stdout; what the commands write to stderr is passed on.";

/// Run a command for each job of a queue
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = more())]
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
            crate::process::pass_token();
        }
        let create = self.create;
        let plan = self.plan()?;
        find(&plan.words[0])?;
        let mut signals = Signals::listen()
            .map_err(|error| Failure::new(ExitStatus::Failed, format!("signals cannot be heard: {error}")))?;
        let store = context.open(create)?;
        let thread = OutputThread::start().map_err(|error| {
            Failure::new(ExitStatus::Failed, format!("a thread cannot be started: {error}"))
        })?;
        let outcome = store
            .closing(async |store| {
                store.jobs()?;
                work(plan, store, context.output, &thread, &mut signals).await
            })
            .await;
        thread.finish();
        outcome.map(|()| DONE)
    }

    fn plan(self) -> Result<WorkPlan, Failure> {
        let bad = |what: String| Failure::new(ExitStatus::Usage, what);
        if self.concurrency == 0 || self.concurrency > Worker::CONCURRENCY_MAX {
            return Err(bad(format!("--concurrency <N>: it takes 1 to {}", Worker::CONCURRENCY_MAX)));
        }
        if self.snooze > DELAY_MS_MAX {
            return Err(bad("--snooze <DURATION>: the limit is 365 days".to_owned()));
        }
        Ok(WorkPlan {
            grace_ms: grace_ms(self.grace, self.ttl)?,
            queues: self.queue,
            concurrency: self.concurrency,
            owner: self.owner.map_or_else(identity::ourselves, Ok)?,
            ttl: Duration::from_millis(self.ttl),
            snooze: Duration::from_millis(self.snooze),
            drain_ms: self.drain_timeout,
            until_empty: self.until_empty,
            words: self.command,
        })
    }
}

/// Whether the command is there at all: a slip of the pen must not cost every job an attempt.
fn find(program: &OsStr) -> Result<(), Failure> {
    let runs = |path: &Path| path.is_file() && access(path, Access::EXEC_OK).is_ok();
    if program.as_bytes().contains(&b'/') {
        let path = Path::new(program);
        return match (path.exists(), runs(path)) {
            (_, true) => Ok(()),
            (true, false) => {
                Err(Failure::new(ExitStatus::CannotRun, format!("{} cannot be executed", path.display())))
            }
            (false, _) => {
                Err(Failure::new(ExitStatus::NotFound, format!("{} was not found", path.display())))
            }
        };
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|directory| runs(&directory.join(program))) {
        return Ok(());
    }
    Err(Failure::new(ExitStatus::NotFound, format!("{} was not found in PATH", program.display()))
        .with_next("No job was claimed."))
}
