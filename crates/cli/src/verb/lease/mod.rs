//! `fencehold lease …`: leases for scripts, and looking at them.

mod acquire;
mod get;
mod ls;
mod release;
mod renew;
mod revoke;
mod watch;

pub(crate) use get::{details, history};

use crate::context::Context;
use crate::verb::{Outcome, verbs};

const EXAMPLES: &str = "\
Examples:
  fencehold lease ls
  fencehold lease get reports/daily
  fencehold lease revoke reports/daily --reason 'host is gone'
";

/// Take, keep, give back, look at and end leases
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
    Acquire = acquire,
    Renew = renew,
    Release = release,
    Ls = ls,
    Get = get,
    Watch = watch,
    Revoke = revoke,
}
