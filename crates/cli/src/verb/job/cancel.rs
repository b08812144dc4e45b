//! `fencehold job cancel`.

use fencehold_contract::job::JobAction;
use fencehold_core::Reason;

use super::change::{JobChange, JobSelection, MORE};
use crate::context::Context;
use crate::verb::VerbResult;

const EXAMPLES: &str = "\
Examples:
  fencehold job cancel 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 --reason 'typo'
  fencehold job cancel --queue emails --label campaign=may --dry-run
";

/// Cancel jobs; the worker of a running one is asked to stop
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    which: JobSelection,
    /// Why; kept in the job's history
    #[arg(long)]
    reason: Option<Reason>,
    /// Do not wait for its worker: a token is consumed, so that its late writes are refused
    #[arg(long)]
    force: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let action = JobAction::Cancel { reason: self.reason, force: self.force };
        self.which.change(context, JobChange { action, done: "cancelled" }).await
    }
}
