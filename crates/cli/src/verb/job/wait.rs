//! `fencehold job wait`: until a job has finished.

use std::time::Duration;

use fencehold_contract::job::JobDetail;
use fencehold_core::job::{JobId, JobState};

use crate::context::{Context, OpenStore};
use crate::duration::{parse_ms, show_exact_ms};
use crate::failure::{ErrorKind, Failure};
use crate::verb::VerbResult;

/// Wait until a job has finished, and print its result
#[derive(Debug, clap::Args)]
#[command(before_help = "\
id=$(fencehold job enqueue --queue reports --kind build --payload '{}')
fencehold job wait \"$id\" --wait 5m")]
#[command(after_help = "\
Exit code 1: it failed, was cancelled, or a person must look at it; 75: it has not finished in time.")]
pub(crate) struct Args {
    /// The job
    #[arg(value_name = "JOB")]
    job: JobId,
    /// How long to wait [default: as long as it takes]
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    wait: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        if context.has_timeout_flag && self.wait.is_none() {
            // As in `kubectl wait` it would be taken for the wait.
            let what = "--timeout is for a store that is unreachable; it does not bound the wait";
            return Err(Failure::usage(what).with_next("Bound the wait with --wait DURATION."));
        }
        let store = context.open_to_wait()?;
        store.closing(async |store| self.wait(context, store).await).await
    }

    async fn wait(self, context: &Context, store: &OpenStore) -> VerbResult {
        store.jobs()?;
        let jobs = store.library().await?.jobs();
        let explain = |error| Failure::of_library(error, &store.name);
        // How it stands comes first: a job or a store that is not there is not waited for.
        let mut detail = jobs.get(self.job).await.map_err(explain)?;
        if !detail.job.state.is_settled() {
            let limit = self.wait.map_or(Duration::MAX, Duration::from_millis);
            detail = jobs.wait(self.job, limit).await.map_err(explain)?;
        }
        if !detail.job.state.is_settled() {
            return Err(self.too_long(&detail));
        }
        if detail.job.state != JobState::Completed {
            return Err(ended_otherwise(&detail));
        }
        context
            .output
            .one(&detail, |_| detail.result.as_deref().unwrap_or_default().to_owned())
    }

    fn too_long(&self, detail: &JobDetail) -> Failure {
        let waited = show_exact_ms(self.wait.unwrap_or(0));
        let what = format!("job {} is still {} after {waited}", self.job, detail.job.state);
        Failure::of_kind(ErrorKind::JobNotFinished, what)
            .with_next(format!("`fencehold explain {}` shows what it waits for.", self.job))
    }
}

fn ended_otherwise(detail: &JobDetail) -> Failure {
    let id = detail.job.id;
    let error = detail.attempts.iter().rev().find_map(|attempt| attempt.error.as_deref());
    let error = error.map(|error| format!(": {}", error.trim_end())).unwrap_or_default();
    Failure::of_kind(ErrorKind::JobFailed, format!("job {id} is {}{error}", detail.job.state))
        .with_next(format!("`fencehold explain {id}` shows why."))
}
