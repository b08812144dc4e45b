//! `fencehold job complete`.

use fencehold_contract::job::Report;

use super::attempt::{AttemptArgs, MORE};
use super::options::Payload;
use crate::context::Context;
use crate::verb::VerbResult;

const EXAMPLES: &str = "\
Examples:
  # After eval \"$(fencehold job claim --queue emails -o env)\"
  fencehold job complete --result '{\"sent\":true}'
";

/// Complete a job
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    attempt: AttemptArgs,
    /// Its result; kept with the job
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    result: Option<Payload>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let result = self.result.map(|Payload(result)| result);
        self.attempt.report(context, Report::Complete { result }).await
    }
}
