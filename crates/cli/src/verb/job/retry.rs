//! `fencehold job retry`: start jobs over.

use fencehold_contract::job::JobAction;

use super::change::{JobChange, JobSelection, MORE};
use crate::context::Context;
use crate::verb::VerbResult;

const EXAMPLES: &str = "\
Examples:
  fencehold job retry 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
  fencehold job retry --queue emails --state failed --state quarantined
";

/// Start jobs over, also those that failed permanently
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    which: JobSelection,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        self.which
            .change(context, JobChange { action: JobAction::Retry, done: "retried" })
            .await
    }
}
