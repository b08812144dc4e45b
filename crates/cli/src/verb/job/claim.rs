//! `fencehold job claim`: one job for a script, which renews it itself and says what came of it.

use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest, ClaimedJob, Report, Weighted};
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_core::limits::TTL_MS_MIN;
use fencehold_core::{Owner, Token, ttl};
use serde::Serialize;
use serde_json::value::RawValue;

use super::get::raw;
use crate::context::{Context, Create, Store};
use crate::duration::{parse_ms, show_ms};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::hold::{self, HOLD_VARIABLE, JOB_VARIABLE, TOKEN_VARIABLE};
use crate::output::Format;
use crate::process::boot_ms;
use crate::show::facts;
use crate::verb::{DONE, Outcome};
use crate::{identity, shell};

const EXAMPLES: &str = "\
Examples:
  # Take a job, work on it, say what came of it
  vars=$(fencehold job claim --queue emails --wait 1m -o env) || exit
  eval \"$vars\"
  if ./send-email \"$FENCEHOLD_PAYLOAD\"
  then fencehold job complete
  else fencehold job fail --error 'not sent'
  fi
";

const MORE: &str = "\
Nobody renews this claim but you: it ends after its ttl, which counts as a crash of the job. For one command a job, \
`fencehold work` is simpler and safer. The hold id is printed once, here. FENCEHOLD_PAYLOAD is set and not exported: it \
may be longer than an environment can be. Exit code 75 means that there was no job.";

/// The variable that holds what a job is about.
const PAYLOAD_VARIABLE: &str = "FENCEHOLD_PAYLOAD";

/// Take one job and print its token and hold id
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// From which queue, and with which weight beside the others (repeatable)
    #[arg(long, value_name = "QUEUE[=WEIGHT]", required = true, value_parser = parse_source)]
    queue: Vec<Source>,
    /// How long the claim lasts unless it is renewed
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = parse_ms, allow_hyphen_values = true)]
    ttl: u64,
    /// How long to wait for a job (up to 1h); without this: not at all
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    wait: Option<u64>,
    /// Who works on it [default: user@host/pid of the calling process]
    #[arg(long)]
    owner: Option<Owner>,
    #[command(flatten)]
    create: Create,
}

/// A queue to take jobs from, with its weight.
pub(crate) type Source = Weighted;

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

/// What a script needs to know.
#[derive(Debug, Serialize)]
struct Taken {
    id: JobId,
    queue: QueueName,
    kind: JobKind,
    payload: Box<RawValue>,
    token: Token,
    attempt: u32,
    ttl_ms: u64,
    remaining_ms: u64,
    hold: String,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        // What no store accepts makes no store either.
        ttl::check(self.ttl, TTL_MS_MIN)?;
        let store = context.open_at(&context.place()?.for_acting(self.create.create)?)?;
        store.closing(async |store| self.claim(context, store).await).await
    }

    async fn claim(self, context: &Context, store: &Store) -> Outcome {
        let hold = hold::fresh()?;
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
            return Err(Failure::new(Exit::Held, format!("no job is ready in {}", names.join(", ")))
                .with_next("Wait for one with --wait 1m; `fencehold queue ls` shows what there is."));
        };
        let attempt = AttemptRef { job_id: job.id, hold_id: hold, token: job.token };
        if let Err(failure) = print(context, &taken(&job, self.ttl, hold.reveal()), &job) {
            // Nobody has seen the hold id, so nobody could say what came of the job.
            let reports = vec![AttemptReport { attempt, report: Report::Release {} }];
            let _ = store.ask(async |jobs, call| jobs.report(call, reports.clone()).await).await;
            return Err(failure);
        }
        Ok(DONE)
    }
}

fn taken(job: &ClaimedJob, ttl_ms: u64, hold: String) -> Taken {
    Taken {
        id: job.id,
        queue: job.queue.clone(),
        kind: job.kind.clone(),
        payload: raw(&job.payload),
        token: job.token,
        attempt: job.attempt,
        ttl_ms,
        remaining_ms: job.remaining_ms,
        hold,
    }
}

fn print(context: &Context, taken: &Taken, job: &ClaimedJob) -> Result<(), Failure> {
    if context.output.format == Format::Env {
        return context.output.text(&shell_lines(taken, &job.payload));
    }
    context.output.one(taken, |palette| {
        facts(
            palette,
            [
                ("job", taken.id.to_string()),
                ("queue", taken.queue.to_string()),
                ("kind", taken.kind.to_string()),
                ("token", taken.token.to_string()),
                ("attempt", taken.attempt.to_string()),
                ("remaining", show_ms(taken.remaining_ms)),
                ("hold id", taken.hold.clone()),
                ("payload", job.payload.to_string()),
            ],
        )
    })
}

fn shell_lines(taken: &Taken, payload: &str) -> String {
    let exported = shell::exports(&[
        (JOB_VARIABLE, &taken.id.to_string()),
        (TOKEN_VARIABLE, &taken.token.to_string()),
        (HOLD_VARIABLE, &taken.hold),
        ("FENCEHOLD_QUEUE", taken.queue.as_str()),
        ("FENCEHOLD_KIND", taken.kind.as_str()),
        ("FENCEHOLD_ATTEMPT", &taken.attempt.to_string()),
    ]);
    format!("{exported}{PAYLOAD_VARIABLE}={}\n", shell::quoted(payload))
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
