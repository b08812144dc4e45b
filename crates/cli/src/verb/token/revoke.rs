//! `fencehold token revoke`: somebody may no longer use the server.

use fencehold_server::access::{BookError, TokenId};
use fencehold_store::clock::{Clock as _, SystemClock};

use crate::context::Context;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::verb::{DONE, Outcome};
use crate::whereabouts::{Whereabouts, unusable};

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
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let id = TokenId::parse(self.id.trim())?;
        let by = crate::identity::person()?.to_string();
        let mut book = self.whereabouts.book(context)?;
        let now_wall_ms = SystemClock.now().wall_ms;
        match book.revoke(id, &by, "this machine", self.reason.as_deref(), now_wall_ms) {
            Ok(true) => crate::output::note(&format!(
                "token {id} is revoked; running servers refuse it within a second"
            )),
            Ok(false) => crate::output::note(&format!("token {id} was revoked before")),
            Err(error @ BookError::NoSuchToken(_)) => {
                let next = format!("`fencehold token ls --all` lists those of {}.", book.path().display());
                return Err(Failure::new(Exit::Failed, error.to_string()).with_next(next));
            }
            Err(error) => return Err(unusable(&error)),
        }
        Ok(DONE)
    }
}
