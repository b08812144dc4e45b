//! `fencehold queue …`: looking at queues, and telling them what to do.

mod drain;
mod ls;
mod order;
mod pause;
mod resume;

use crate::context::Context;
use crate::verb::{Outcome, verbs};

const EXAMPLES: &str = "\
Examples:
  fencehold queue ls
  fencehold queue pause emails
  fencehold queue resume emails
";

/// Look at queues; pause, resume or drain them
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
    Ls = ls,
    Pause = pause,
    Resume = resume,
    Drain = drain,
}
