//! `fencehold queue pause`: it hands out no more jobs, and takes new ones.

use fencehold_contract::job::QueueMode;

use super::order::Order;
use crate::context::Context;
use crate::verb::Outcome;

const EXAMPLES: &str = "\
Examples:
  fencehold queue pause emails
";

/// Have a queue hand out no more jobs; it still takes new ones
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    order: Order,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        self.order.give(context, QueueMode::Paused).await
    }
}
