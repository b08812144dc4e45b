//! `fencehold job wait`: until a job has come to its end.

use std::time::Duration;

use fencehold_contract::job::JobDetail;
use fencehold_core::job::{JobId, JobState};

use super::get::Document;
use crate::context::{Context, Store};
use crate::duration::{parse_ms, show_exact_ms};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  id=$(fencehold job enqueue --queue reports --kind build --payload '{}')
  fencehold job wait \"$id\" --timeout 5m
";

const MORE: &str = "\
Prints the result of a completed job. Exit code 1: it failed, was cancelled, or a person must look; 75: it has not \
come to its end in time.";

/// Wait for a job to come to its end, and print its result
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Which job
    #[arg(value_name = "JOB")]
    job: JobId,
    /// For how long; without this: for as long as it takes
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    timeout: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_wait()?;
        store.closing(async |store| self.wait(context, store).await).await
    }

    async fn wait(self, context: &Context, store: &Store) -> Outcome {
        store.jobs()?;
        let jobs = store.library().await?.jobs();
        let explain = |error| Failure::of_library(error, &store.name);
        // How it stands comes first: a job or a store that is not there is not waited for.
        let mut detail = jobs.get(self.job).await.map_err(explain)?;
        if !detail.job.state.is_settled() {
            let limit = self.timeout.map_or(Duration::MAX, Duration::from_millis);
            detail = jobs.wait_for(self.job, limit).await.map_err(explain)?;
        }
        if !detail.job.state.is_settled() {
            return Err(self.too_long(&detail));
        }
        if detail.job.state == JobState::Completed {
            context
                .output
                .one(&Document::from(&detail), |_| detail.result.as_deref().unwrap_or_default().to_owned())?;
            return Ok(DONE);
        }
        Err(ended_otherwise(&detail))
    }

    fn too_long(&self, detail: &JobDetail) -> Failure {
        let waited = show_exact_ms(self.timeout.unwrap_or(0));
        let what = format!("job {} is still {} after {waited}", self.job, detail.job.state);
        Failure::new(Exit::Held, what)
            .with_next(format!("`fencehold explain {}` tells what it waits for.", self.job))
    }
}

fn ended_otherwise(detail: &JobDetail) -> Failure {
    let id = detail.job.id;
    let error = detail.attempts.iter().rev().find_map(|attempt| attempt.error.as_deref());
    let error = error.map(|error| format!(": {}", error.trim_end())).unwrap_or_default();
    Failure::new(Exit::Failed, format!("job {id} is {}{error}", detail.job.state))
        .with_next(format!("`fencehold explain {id}` tells the whole story."))
}
