//! `fencehold job rm`: delete jobs.

use fencehold_contract::job::JobAction;

use super::change::{JobChange, JobSelection, MORE};
use crate::context::Context;
use crate::verb::VerbResult;

const EXAMPLES: &str = "\
Examples:
  fencehold job rm 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
  fencehold job rm --queue emails --state completed
";

/// Delete jobs; a running one only with --force, which is recorded
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    which: JobSelection,
    /// Also while it is running
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let action = JobAction::Delete { force: self.force };
        self.which.change(context, JobChange { action, done: "deleted" }).await
    }
}
