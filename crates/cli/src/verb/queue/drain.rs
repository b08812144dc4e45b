//! `fencehold queue drain`: it takes no new jobs, and hands out what it has.

use fencehold_contract::job::QueueMode;

use super::order::Order;
use crate::context::Context;
use crate::verb::Outcome;

const EXAMPLES: &str = "\
Examples:
  fencehold queue drain emails
";

/// Have a queue take no new jobs; it still hands out what it has
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    order: Order,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        self.order.give(context, QueueMode::Draining).await
    }
}
