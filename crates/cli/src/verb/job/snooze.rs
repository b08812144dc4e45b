//! `fencehold job snooze`: put the job off.

use fencehold_contract::job::Report;

use super::attempt::{AttemptArgs, MORE};
use crate::context::Context;
use crate::duration::parse_ms;
use crate::verb::VerbResult;

const EXAMPLES: &str = "\
Examples:
  # After eval \"$(fencehold job claim --queue emails -o env)\"
  fencehold job snooze --delay 10m
";

/// Put a job off; this counts neither as a failure nor as a crash
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    attempt: AttemptArgs,
    /// For how long
    #[arg(long, value_name = "DURATION", value_parser = parse_ms, allow_hyphen_values = true)]
    delay: u64,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.attempt.report(context, Report::Snooze { delay_ms: self.delay }).await
    }
}
