//! `fencehold job renew`, `checkpoint`, `progress`, `complete`, `fail`, `snooze` and `release`: what a script says of its
//! attempt at a job.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::ArgGroup;
use fencehold_contract::http::RenewedAttempt;
use fencehold_contract::job::{AttemptReport, JobAction, Report};
use fencehold_core::job::{AttemptRenewal, JobId};
use fencehold_core::limits::CHECKPOINT_BYTES_MAX;
use fencehold_core::{Owner, Reason};
use serde_json::value::RawValue;

use super::change::JobSelection;
use super::options::Payload;
use crate::context::Context;
use crate::duration::{parse_ms, show_ms};
use crate::failure::{Failure, only_answer};
use crate::hold_id;
use crate::show::{facts, yield_lines};
use crate::verb::VerbResult;

pub(super) const MORE: &str = "\
The hold id comes from FENCEHOLD_HOLD_ID or from stdin, never from an argument, which every user of the machine could \
read. Exit code 76 means that the attempt is lost: stop.";

// Which attempt it is.
#[derive(Debug, clap::Args)]
pub(crate) struct AttemptArgs {
    #[arg(value_name = "JOB", help = "Which job [env: FENCEHOLD_JOB_ID]")]
    job: Option<JobId>,
    #[arg(long, value_name = "N", help = hold_id::TOKEN_HELP)]
    token: Option<u64>,
}

impl AttemptArgs {
    /// Reports, and prints what became of the job.
    pub(super) async fn report(self, context: &Context, report: Report) -> VerbResult {
        let (id, answers) = context
            .look(async |store| {
                let attempt = hold_id::attempt(self.job, self.token)?;
                let id = attempt.job_id;
                let reports = vec![AttemptReport { attempt, report }];
                Ok((id, store.ask(async |jobs, call| jobs.report(call, reports.clone()).await).await?))
            })
            .await?;
        let reported = only_answer(answers, |refusal| Failure::refused_job(id, refusal))?;
        context.output.one(&reported, |style| {
            let mut lines = vec![("job", id.to_string()), ("state", reported.state.to_string())];
            lines.extend(reported.retry_in_ms.map(|ms| ("retry in", show_ms(ms))));
            let late = "the claim had expired, but no other worker had the job since";
            lines.extend(reported.late.then(|| ("late", late.to_owned())));
            facts(style, lines)
        })
    }

    pub(super) async fn renew(self, context: &Context) -> VerbResult {
        let (id, renewed) = context
            .look(async |store| {
                let attempts = vec![hold_id::attempt(self.job, self.token)?];
                let ask = store.ask(async |jobs, call| jobs.renew_attempts(call, attempts.clone()).await);
                Ok((attempts[0].job_id, ask.await?))
            })
            .await?;
        let renewal = only_answer(renewed.results, |refusal| Failure::refused_job(id, refusal))?;
        let AttemptRenewal { token, remaining_ms, cancel_requested, yield_request } = renewal;
        let waited_ms = renewed.waited_ms;
        let renewed = RenewedAttempt { token, remaining_ms, cancel_requested, yield_request, waited_ms };
        context.output.one(&renewed, |style| {
            let mut lines =
                vec![("job", id.to_string()), ("token", token.to_string()), ("left", show_ms(remaining_ms))];
            lines.extend(cancel_requested.then(|| ("cancel requested", "stop, and release it".to_owned())));
            lines.extend(yield_lines(renewed.yield_request.as_ref()));
            facts(style, lines)
        })
    }
}

// For the worker that did the work, or never will, and cannot say so.
#[derive(Debug, clap::Args)]
pub(crate) struct ForceArgs {
    /// In place of its worker, without a hold id: a token is consumed, so that what the worker still writes is refused
    #[arg(long, requires_all = ["job", "reason"], conflicts_with = "token")]
    force: bool,
    /// With --force: why; kept in the job's history
    #[arg(long, requires = "force")]
    reason: Option<Reason>,
    /// With --force: who does it [default: user@host]
    #[arg(long, value_name = "NAME", requires = "force")]
    by: Option<Owner>,
}

impl ForceArgs {
    /// Why it is forced; `None`: it is not.
    fn reason(&self) -> Option<Reason> {
        self.reason.clone().filter(|_| self.force)
    }

    async fn change(
        self,
        context: &Context,
        job: Option<JobId>,
        action: JobAction,
        done: &'static str,
    ) -> VerbResult {
        let selection = JobSelection::one(job, self.by);
        selection.change(context, action, done).await
    }
}

/// Store where a later attempt should go on from
#[derive(Debug, clap::Args)]
#[command(after_help = CHECKPOINT_MORE, before_help = "\
# After eval \"$(fencehold job claim --queue exports -o env)\"
fencehold job checkpoint --file state
fencehold job checkpoint --text 'row 1200'")]
#[command(group = ArgGroup::new("what").required(true).args(["file", "text"]))]
pub(crate) struct CheckpointArgs {
    #[command(flatten)]
    attempt: AttemptArgs,
    /// The checkpoint: the bytes of this file; - is stdin
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The checkpoint: this text
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    text: Option<String>,
}

const CHECKPOINT_MORE: &str = "\
A checkpoint is up to 256 KiB of any bytes, and replaces the one before. When this ends with 0 it is stored: whatever \
happens to the attempt, the next `fencehold job claim --checkpoint-file FILE` and `fencehold work` hand it on. It does \
not renew the claim. The hold id comes from FENCEHOLD_HOLD_ID or from stdin (with --file -, only from \
FENCEHOLD_HOLD_ID), never from an argument, which every user of the machine could read. Exit code 76 means that the \
attempt is lost: stop.";

impl CheckpointArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let checkpoint = match (&self.file, self.text) {
            (Some(file), _) => read_checkpoint(file)?,
            (None, text) => text.unwrap_or_default().into_bytes(),
        };
        self.attempt.report(context, Report::Checkpoint { checkpoint }).await
    }
}

/// Reads a file, or stdin; of one that is too long no more than tells so.
fn read_checkpoint(file: &Path) -> Result<Vec<u8>, Failure> {
    let read = |source: &mut dyn Read| {
        let mut bytes = Vec::new();
        source
            .take(CHECKPOINT_BYTES_MAX as u64 + 1)
            .read_to_end(&mut bytes)
            .map(|_| bytes)
    };
    let bytes = if file == Path::new("-") {
        hold_id::require_variable("stdin is the checkpoint")?;
        read(&mut io::stdin().lock())
    } else {
        File::open(file).and_then(|mut file| read(&mut file))
    };
    let bytes = bytes.map_err(|error| Failure::usage(format!("--file {}: {error}", file.display())))?;
    if bytes.len() > CHECKPOINT_BYTES_MAX {
        let what =
            format!("--file {}: it has more than {CHECKPOINT_BYTES_MAX} bytes (256 KiB)", file.display());
        return Err(Failure::usage(what).with_next(
            "The checkpoint before stays. Keep what is large elsewhere, and where it is in the checkpoint.",
        ));
    }
    Ok(bytes)
}

/// Say how far a job has come, for people
#[derive(Debug, clap::Args)]
#[command(after_help = MORE, before_help = "\
# After eval \"$(fencehold job claim --queue exports -o env)\"
fencehold job progress --note 'row 1200 of 5000'
fencehold job progress --note '{\"row\":1200,\"of\":5000}'")]
pub(crate) struct ProgressArgs {
    #[command(flatten)]
    attempt: AttemptArgs,
    /// How far: as it is if it is JSON, else as a JSON text; up to 4 KiB
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    note: String,
}

impl ProgressArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let is_json = serde_json::from_str::<&RawValue>(&self.note).is_ok();
        let progress = if is_json {
            self.note.trim().into()
        } else {
            serde_json::Value::from(self.note).to_string().into()
        };
        self.attempt.report(context, Report::Progress { progress }).await
    }
}

/// Complete a job
#[derive(Debug, clap::Args)]
#[command(after_help = MORE, before_help = "\
# After eval \"$(fencehold job claim --queue emails -o env)\"
fencehold job complete --result '{\"sent\":true}'
# Its worker did the work, and died before it could say so
fencehold job complete 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 --force \\
  --reason 'seen in the outbox'")]
pub(crate) struct CompleteArgs {
    #[command(flatten)]
    attempt: AttemptArgs,
    /// Its result; kept with the job
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    result: Option<Payload>,
    #[command(flatten)]
    force: ForceArgs,
}

impl CompleteArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let CompleteArgs { attempt, result, force } = self;
        let result = result.map(|Payload(result)| result);
        match force.reason() {
            Some(reason) => {
                let action = JobAction::Complete { result, reason };
                force.change(context, attempt.job, action, "completed").await
            }
            None => attempt.report(context, Report::Complete { result }).await,
        }
    }
}

/// Fail a job; it is retried by its policy
#[derive(Debug, clap::Args)]
#[command(after_help = MORE, before_help = "\
# After eval \"$(fencehold job claim --queue emails -o env)\"
fencehold job fail --error 'the mail server refused it'
fencehold job fail --error 'no such address' --permanent
# Its worker hangs, and the job must not be tried again
fencehold job fail 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 --force \\
  --reason 'the customer has left'")]
pub(crate) struct FailArgs {
    #[command(flatten)]
    attempt: AttemptArgs,
    /// What went wrong; kept with the attempt
    #[arg(long, value_name = "TEXT", required_unless_present = "force", conflicts_with = "force")]
    error: Option<String>,
    /// Retry after this time instead of the policy's
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true, conflicts_with = "force")]
    retry_in: Option<u64>,
    /// Do not retry; --force implies it
    #[arg(long, conflicts_with = "retry_in")]
    permanent: bool,
    #[command(flatten)]
    force: ForceArgs,
}

impl FailArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let FailArgs { attempt, error, retry_in: retry_in_ms, permanent, force } = self;
        if let Some(reason) = force.reason() {
            return force.change(context, attempt.job, JobAction::Fail { reason }, "failed").await;
        }
        let error = error.unwrap_or_default();
        attempt.report(context, Report::Fail { error, retry_in_ms, permanent }).await
    }
}

/// Put a job off; this counts neither as a failure nor as a crash
#[derive(Debug, clap::Args)]
#[command(after_help = MORE, before_help = "\
# After eval \"$(fencehold job claim --queue emails -o env)\"
fencehold job snooze --delay 10m")]
pub(crate) struct SnoozeArgs {
    #[command(flatten)]
    attempt: AttemptArgs,
    /// For how long
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    delay: u64,
}

impl SnoozeArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.attempt.report(context, Report::Snooze { delay_ms: self.delay }).await
    }
}
