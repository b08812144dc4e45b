//! `fencehold job fail`: the work went wrong.

use fencehold_contract::job::Report;

use super::attempt::{Attempt, MORE};
use crate::context::Context;
use crate::duration::parse_ms;
use crate::verb::Outcome;

const EXAMPLES: &str = "\
Examples:
  # After `eval \"$(fencehold job claim --queue emails -o env)\"`
  fencehold job fail --error 'the mail server refused it'
  fencehold job fail --error 'no such address' --for-good
";

/// Say that a job went wrong; it is tried again by its policy
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    attempt: Attempt,
    /// What went wrong: kept with the attempt
    #[arg(long, value_name = "TEXT")]
    error: String,
    /// Try again after this time instead of what the policy says
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    retry_in: Option<u64>,
    /// Do not try again
    #[arg(long, conflicts_with = "retry_in")]
    for_good: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let Args { attempt, error, retry_in, for_good } = self;
        attempt
            .say(context, Report::Fail { error, retry_in_ms: retry_in, permanent: for_good })
            .await
    }
}
