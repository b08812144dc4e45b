//! `fencehold access-token revoke`.

use fencehold_contract::http::access::RevokedAccessToken;
use fencehold_server::access::TokenId;

use crate::context::Context;
use crate::output::note;
use crate::server_files::ServerFileArgs;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold access-token revoke 4f1d2c3b5a69
  fencehold access-token revoke 4f1d2c3b5a69 --reason 'found in a log'
";

/// Revoke an access token; running servers refuse it within a second
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Its id, as `access-token ls` shows it
    id: String,
    /// Why; kept in the audit
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    server_files: ServerFileArgs,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let id = TokenId::parse(self.id.trim())?;
        let by = crate::identity::person()?.to_string();
        let revoked = self.server_files.tokens(context)?.revoke(id, by, self.reason).await?;
        context.output.one(&RevokedAccessToken { revoked }, |_| String::new())?;
        note(&if revoked {
            format!("access token {id} is revoked; running servers refuse it within a second")
        } else {
            format!("access token {id} was revoked before")
        });
        Ok(DONE)
    }
}
