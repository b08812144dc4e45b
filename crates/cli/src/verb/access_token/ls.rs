//! `fencehold access-token ls`: who may use the server.

use fencehold_contract::clock::{Clock as _, SystemClock};
use fencehold_contract::http::access::{AccessTokenList, AccessTokenView};
use fencehold_core::wire::Moment;
use fencehold_server::access::Scopes;

use crate::context::Context;
use crate::duration::show_ms;
use crate::server_files::ServerFileArgs;
use crate::show::{Cell, Colour, Table, or_dash, utc};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold access-token ls
  fencehold access-token ls --include-inactive -o json
";

/// List access tokens: namespace, scopes, expiry, last use
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// List revoked and expired ones too
    #[arg(long)]
    include_inactive: bool,
    #[command(flatten)]
    server_files: ServerFileArgs,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let now_ms = SystemClock.now().wall_ms;
        let mut tokens = self.server_files.tokens(context)?.list().await?;
        tokens.retain(|token| self.include_inactive || state(token, now_ms).0 == "valid");
        let list = AccessTokenList { access_tokens: tokens };
        let tokens = &list.access_tokens;
        context
            .output
            .list(&list, tokens, "no access tokens", || table(tokens, now_ms))?;
        Ok(DONE)
    }
}

fn table(tokens: &[AccessTokenView], now_ms: u64) -> Table {
    let mut table = Table::new(["ID", "NAME", "NAMESPACE", "SCOPES", "EXPIRES", "LAST USED", "STATE"]);
    let ago = |moment: Moment| format!("{} ago", show_ms(now_ms.saturating_sub(moment.wall_ms)));
    for token in tokens {
        let (state, colour) = state(token, now_ms);
        let scopes: Scopes = token.scopes.iter().copied().collect();
        table.row([
            token.id.as_str().into(),
            token.name.as_str().into(),
            token.namespace.as_ref().map_or("*", |name| name.as_str()).into(),
            scopes.to_string().replace(',', ", ").into(),
            or_dash(token.expires_at.map(|moment| utc(moment.wall_ms))),
            or_dash(token.last_used_at.map(ago)),
            Cell::from(state).in_colour(colour),
        ]);
    }
    table
}

fn state(token: &AccessTokenView, now_ms: u64) -> (&'static str, Colour) {
    if token.revoked_at.is_some() {
        ("revoked", Colour::Bad)
    } else if token.expires_at.is_some_and(|end| end.wall_ms <= now_ms) {
        ("expired", Colour::Faint)
    } else {
        ("valid", Colour::Good)
    }
}
