//! `fencehold queue drain`.

use fencehold_contract::job::QueueMode;

use super::mode::ModeArgs;
use crate::context::Context;
use crate::verb::VerbResult;

const EXAMPLES: &str = "\
Examples:
  fencehold queue drain emails
";

/// Drain a queue: it takes no new jobs and hands out those it has
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    mode: ModeArgs,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.mode.set(context, QueueMode::Draining).await
    }
}
