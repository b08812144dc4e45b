//! `fencehold queue resume`: it takes jobs and hands them out.

use fencehold_contract::job::QueueMode;

use super::order::Order;
use crate::context::Context;
use crate::verb::Outcome;

const EXAMPLES: &str = "\
Examples:
  fencehold queue resume emails
";

/// Have a queue take jobs and hand them out again
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(flatten)]
    order: Order,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        self.order.give(context, QueueMode::Open).await
    }
}
