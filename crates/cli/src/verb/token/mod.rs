//! `fencehold token …`: who may use a server. One file a verb; one line each in the registry.

mod create;
mod ls;
mod revoke;

use crate::context::Context;
use crate::verb::{Outcome, verbs};

const EXAMPLES: &str = "\
Examples:
  fencehold token create worker-7 --scope job:work
  fencehold token ls
  fencehold token revoke 4f1d2c3b5a69
";

/// Make, list and revoke the tokens that a server asks for
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
    Create = create,
    Ls = ls,
    Revoke = revoke,
}
