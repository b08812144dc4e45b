//! `fencehold job fail`.

use fencehold_contract::job::Report;

use super::attempt::{AttemptArgs, MORE};
use crate::context::Context;
use crate::duration::parse_ms;
use crate::verb::VerbResult;

const EXAMPLES: &str = "\
Examples:
  # After eval \"$(fencehold job claim --queue emails -o env)\"
  fencehold job fail --error 'the mail server refused it'
  fencehold job fail --error 'no such address' --permanent
";

/// Fail a job; it is retried by its policy
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    attempt: AttemptArgs,
    /// What went wrong; kept with the attempt
    #[arg(long, value_name = "TEXT")]
    error: String,
    /// Retry after this time instead of the policy's
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    retry_in: Option<u64>,
    /// Do not retry
    #[arg(long, conflicts_with = "retry_in")]
    permanent: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let Args { attempt, error, retry_in, permanent } = self;
        attempt
            .report(context, Report::Fail { error, retry_in_ms: retry_in, permanent })
            .await
    }
}
