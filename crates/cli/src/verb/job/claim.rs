//! `fencehold job claim`: one job for a script, which renews it itself and says what came of it.

use std::path::{Path, PathBuf};

use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest, ClaimedJob, QueueWeight, Report};
use fencehold_core::job::QueueName;
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_core::{Owner, ttl};

use crate::context::{Context, CreateStore, OpenStore};
use crate::duration::{parse_ms, show_ms};
use crate::failure::{ErrorKind, Failure};
use crate::hold_id::{self, HOLD_VARIABLE, JOB_VARIABLE, TOKEN_VARIABLE, WithHoldId};
use crate::output::Format;
use crate::process::boot_ms;
use crate::show::facts;
use crate::verb::VerbResult;
use crate::{identity, shell};

/// The variable that holds a job's payload.
const PAYLOAD_VARIABLE: &str = "FENCEHOLD_PAYLOAD";

/// Claim one job and print its token and hold id
#[derive(Debug, clap::Args)]
#[command(before_help = "\
# Claim a job, work on it, report
vars=$(fencehold job claim --queue emails --wait 1m -o env) || exit
eval \"$vars\"
if ./send-email \"$FENCEHOLD_PAYLOAD\"
then fencehold job complete
else fencehold job fail --error 'not sent'
fi")]
#[command(after_help = "\
The claim ends after its ttl unless you renew it, which counts as a crash of the job. To run one command for each job, \
`fencehold work` is simpler and safer. The hold id is a secret: it is printed once, here. With -o env, \
FENCEHOLD_PAYLOAD is set and not exported: it may be longer than an environment can be. Exit code 75 means that no job \
was ready.")]
pub(crate) struct Args {
    /// Queue to claim from, and its share among several (repeatable)
    #[arg(long, value_name = "QUEUE[=WEIGHT]", required = true, value_parser = parse_source)]
    queue: Vec<Source>,
    /// How long the claim lasts unless it is renewed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_ms, allow_hyphen_values = true)]
    ttl: u64,
    /// How long to wait for a job, up to 1h [default: not at all]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// Who works on it [default: user@host/pid of the calling process]
    #[arg(long)]
    owner: Option<Owner>,
    /// Write the checkpoint of an earlier attempt to this file; empty if there is none
    #[arg(long, value_name = "FILE")]
    checkpoint_file: Option<PathBuf>,
    #[command(flatten)]
    create: CreateStore,
}

/// A queue to take jobs from, with its weight.
pub(crate) type Source = QueueWeight;

/// Reads `emails` or `emails=3`.
pub(crate) fn parse_source(text: &str) -> Result<Source, String> {
    let (name, weight) = match text.rsplit_once('=') {
        None => (text, 1),
        Some((name, weight)) => {
            let weight = weight.parse().ok().filter(|weight| *weight > 0);
            (name, weight.ok_or("a weight is a whole number from 1, as in emails=3")?)
        }
    };
    let queue = QueueName::new(name).map_err(|error| error.to_string())?;
    queue.check_open().map_err(|error| error.to_string())?;
    Ok((queue, weight))
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        // Validate before creating the store.
        ttl::check(self.ttl, TTL_MS_MIN)?;
        let store = context.open_in_any_format(self.create)?;
        store.closing(async |store| self.claim(context, store).await).await
    }

    async fn claim(self, context: &Context, store: &OpenStore) -> VerbResult {
        let hold = hold_id::fresh()?;
        let owner = self.owner.map_or_else(identity::caller, Ok)?;
        let names: Vec<String> = self.queue.iter().map(|(queue, _)| queue.to_string()).collect();
        let wait_ms = self.wait.unwrap_or(0);
        let began_ms = boot_ms();
        let claimed = store
            .ask(async |jobs, call| {
                let waited_ms = boot_ms().saturating_sub(began_ms);
                let request = ClaimJobsRequest {
                    queues: self.queue.clone(),
                    limit: 1,
                    hold_id: hold,
                    owner: owner.clone(),
                    ttl_ms: self.ttl,
                    wait_ms: wait_ms.saturating_sub(waited_ms),
                    waited_before_ms: waited_ms,
                };
                jobs.claim(call, request).await
            })
            .await?;
        let Some(job) = claimed.jobs.into_iter().next() else {
            let what = format!("no job is ready in {}", names.join(", "));
            return Err(Failure::of_kind(ErrorKind::WaitTimedOut, what)
                .with_next("Wait for one with --wait 1m; `fencehold queue ls` shows what there is."));
        };
        let attempt = AttemptRef { job_id: job.id, hold_id: hold, token: job.token };
        let written = write_checkpoint(self.checkpoint_file.as_deref(), &job);
        let granted = WithHoldId { granted: job, hold_id: hold.reveal() };
        if let Err(failure) = written.and_then(|()| print(context, &granted)) {
            // Nothing has seen the hold id, so nothing could report on the job.
            let reports = vec![AttemptReport { attempt, report: Report::Release {} }];
            let _ = store.ask(async |jobs, call| jobs.report(call, reports.clone()).await).await;
            return Err(failure);
        }
        Ok(())
    }
}

fn write_checkpoint(file: Option<&Path>, job: &ClaimedJob) -> Result<(), Failure> {
    let Some(file) = file else { return Ok(()) };
    std::fs::write(file, job.checkpoint.as_deref().unwrap_or_default()).map_err(|error| {
        Failure::failed(format!("--checkpoint-file {}: {error}", file.display()))
            .with_next(format!("Job {} was given back to its queue.", job.id))
    })
}

fn print(context: &Context, claimed: &WithHoldId<ClaimedJob>) -> Result<(), Failure> {
    if context.output.format == Format::Env {
        return context.output.text(&shell_lines(claimed));
    }
    let job = &claimed.granted;
    let mut lines = vec![
        ("job", job.id.to_string()),
        ("queue", job.queue.to_string()),
        ("kind", job.kind.to_string()),
        ("token", job.token.to_string()),
        ("attempt", job.attempt.to_string()),
        ("left", show_ms(job.remaining_ms)),
        ("hold id", claimed.hold_id.clone()),
        ("payload", job.payload.to_string()),
    ];
    lines.extend(
        job.checkpoint
            .as_ref()
            .map(|bytes| ("checkpoint", format!("{} bytes", bytes.len()))),
    );
    context.output.one(claimed, |style| facts(style, lines))
}

fn shell_lines(claimed: &WithHoldId<ClaimedJob>) -> String {
    let job = &claimed.granted;
    let exported = shell::exports(&[
        (JOB_VARIABLE, &job.id.to_string()),
        (TOKEN_VARIABLE, &job.token.to_string()),
        (HOLD_VARIABLE, &claimed.hold_id),
        ("FENCEHOLD_QUEUE", job.queue.as_str()),
        ("FENCEHOLD_KIND", job.kind.as_str()),
        ("FENCEHOLD_ATTEMPT", &job.attempt.to_string()),
    ]);
    format!("{exported}{PAYLOAD_VARIABLE}={}\n", shell::quoted(&job.payload))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_a_weight_of_one_unless_told() {
        let queue = |name: &str| QueueName::new(name).unwrap();
        assert_eq!(parse_source("emails"), Ok((queue("emails"), 1)));
        assert_eq!(parse_source("emails=7"), Ok((queue("emails"), 7)));
        for bad in ["emails=0", "emails=-1", "emails=many", "", "=3", "fencehold/operations"] {
            assert!(parse_source(bad).is_err(), "{bad}");
        }
    }
}
