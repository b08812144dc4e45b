//! `fencehold token revoke`: somebody may no longer use the server.

use fencehold_server::access::TokenId;

use crate::context::Context;
use crate::verb::{DONE, Outcome};
use crate::whereabouts::Whereabouts;

const EXAMPLES: &str = "\
Examples:
  fencehold token revoke 4f1d2c3b5a69
  fencehold token revoke 4f1d2c3b5a69 --reason 'found in a log'
";

/// Revoke a token. Running servers refuse it within a second
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which, as `token ls` shows it
    id: String,
    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    whereabouts: Whereabouts,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let id = TokenId::parse(self.id.trim())?;
        let by = crate::identity::person()?.to_string();
        if self.whereabouts.tokens(context)?.revoke(id, by, self.reason).await? {
            crate::output::note(&format!("token {id} is revoked; running servers refuse it within a second"));
        } else {
            crate::output::note(&format!("token {id} was revoked before"));
        }
        Ok(DONE)
    }
}
