//! `fencehold job delete`: forget jobs.

use fencehold_contract::job::JobAction;

use super::act::{Deed, MORE, Which};
use crate::context::Context;
use crate::verb::Outcome;

const EXAMPLES: &str = "\
Examples:
  fencehold job delete 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
  fencehold job delete --queue emails --state completed
";

/// Forget jobs; one that somebody works on only with --force, which is recorded
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Also while somebody works on it
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let action = JobAction::Delete { force: self.force };
        self.which.act(context, Deed { action, done: "deleted" }).await
    }
}
