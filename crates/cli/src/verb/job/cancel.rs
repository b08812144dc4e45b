//! `fencehold job cancel`: call jobs off.

use fencehold_contract::job::JobAction;
use fencehold_core::Reason;

use super::act::{Deed, MORE, Which};
use crate::context::Context;
use crate::verb::Outcome;

const EXAMPLES: &str = "\
Examples:
  fencehold job cancel 01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55 --reason 'wrong input'
  fencehold job cancel --queue emails --label campaign=may --dry-run
";

/// Call jobs off; who works on one learns it at once where the store can tell, else at the next renewal
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Why: kept with the job's history
    #[arg(long)]
    reason: Option<Reason>,
    /// Do not wait for whoever works on it: a token is used up, so that what it still writes is refused
    #[arg(long)]
    now: bool,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let action = JobAction::Cancel { reason: self.reason, force: self.now };
        self.which.act(context, Deed { action, done: "cancelled" }).await
    }
}
