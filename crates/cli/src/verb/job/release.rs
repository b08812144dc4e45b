//! `fencehold job release`: another worker shall do it.

use fencehold_contract::job::Report;

use super::attempt::{AttemptArgs, MORE};
use crate::context::Context;
use crate::verb::VerbResult;

const EXAMPLES: &str = "\
Examples:
  # After eval \"$(fencehold job claim --queue emails -o env)\"
  fencehold job release
";

/// Give a job back to its queue, at its old place; this counts as nothing
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    attempt: AttemptArgs,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.attempt.report(context, Report::Release {}).await
    }
}
