//! `fencehold config …`: what a server would be told. One file a verb; one line each in the registry.

mod check;

use crate::context::Context;
use crate::verb::{Outcome, verbs};

const EXAMPLES: &str = "\
Examples:
  fencehold config check
  fencehold config check --config /etc/fencehold/server.toml
";

/// Look at a server's settings
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
    Check = check,
}
