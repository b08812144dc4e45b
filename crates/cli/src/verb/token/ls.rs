//! `fencehold token ls`: who may use the server.

use fencehold_contract::clock::{Clock as _, SystemClock};

use crate::context::Context;
use crate::show::{Cell, Colour, Table, or_dash, utc};
use crate::tokens::Shown;
use crate::verb::{DONE, Outcome};
use crate::whereabouts::Whereabouts;

const EXAMPLES: &str = "\
Examples:
  fencehold token ls
  fencehold token ls --all -o json
";

/// List tokens: for which namespace, for what, until when, when last used
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Those too that were revoked or have ended
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    whereabouts: Whereabouts,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let now_wall_ms = SystemClock.now().wall_ms;
        let mut tokens = self.whereabouts.tokens(context)?.list().await?;
        tokens.retain(|token| self.all || state(token, now_wall_ms).0 == "valid");
        context.output.many(&tokens, "no tokens", || table(&tokens, now_wall_ms))?;
        Ok(DONE)
    }
}

fn table(tokens: &[Shown], now_wall_ms: u64) -> Table {
    let mut table = Table::new(["ID", "NAME", "NAMESPACE", "SCOPES", "MADE", "ENDS", "LAST USED", "STATE"]);
    for token in tokens {
        let (state, colour) = state(token, now_wall_ms);
        table.row([
            token.id.as_str().into(),
            token.name.as_str().into(),
            token.namespace.as_ref().map_or("*", |name| name.as_str()).into(),
            token.scopes.as_str().into(),
            utc(token.created_wall_ms).into(),
            or_dash(token.expires_wall_ms.map(utc)),
            or_dash(token.last_used_wall_ms.map(utc)),
            Cell::from(state).in_colour(colour),
        ]);
    }
    table
}

fn state(token: &Shown, now_wall_ms: u64) -> (&'static str, Colour) {
    if token.revoked_wall_ms.is_some() {
        ("revoked", Colour::Bad)
    } else if token.expires_wall_ms.is_some_and(|end| end <= now_wall_ms) {
        ("ended", Colour::Faint)
    } else {
        ("valid", Colour::Good)
    }
}
