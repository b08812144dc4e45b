//! `fencehold schedule …`: jobs that are enqueued by the clock.

mod add;
mod ls;
mod next;
mod rm;

use crate::context::Context;
use crate::verb::{Outcome, verbs};

const EXAMPLES: &str = "\
Examples:
  fencehold schedule add nightly --cron '30 3 * * *' --zone Europe/Berlin --queue reports --kind build
  fencehold schedule ls
  fencehold schedule next nightly
";

/// Enqueue jobs by the clock: cron lines with time zones
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    #[command(subcommand)]
    verb: Verb,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        self.verb.run(context).await
    }
}

verbs! { Verb:
    Add = add,
    Ls = ls,
    Rm = rm,
    Next = next,
}
