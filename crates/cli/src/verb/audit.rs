//! `fencehold audit …`: who did what by force, from where, and why.

use fencehold_contract::http::access::AuditEntry;

use crate::context::Context;
use crate::duration::parse_ms;
use crate::server_files::ServerFileArgs;
use crate::show::{Cell, Colour, Table, or_dash, utc};
use crate::verb::{VerbResult, verbs};

verbs! {
    /// Show what was done by force through a server
    #[command(before_help = "fencehold audit ls --since 24h")]
    Verb:
    Ls = LsArgs,
}

/// List what was done by force through a server, and to its access tokens
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold audit ls
fencehold audit ls --since 24h -o jsonl
fencehold audit ls --namespace team-a --only-namespace")]
pub(crate) struct LsArgs {
    /// Not older than this: 24h, 7d
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    since: Option<u64>,
    /// Only what came after this entry
    #[arg(long, value_name = "SEQ")]
    cursor: Option<u64>,
    /// The newest so many
    #[arg(long, value_name = "N", default_value_t = 200)]
    limit: u64,
    /// Only what was done in the namespace of --namespace
    #[arg(long)]
    only_namespace: bool,
    #[command(flatten)]
    server_files: ServerFileArgs,
}

impl LsArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let only = self.only_namespace.then(|| context.namespace.clone());
        let tokens = self.server_files.tokens(context)?;
        let page = tokens.audit(self.cursor, self.since, self.limit, only).await?;
        context.output.list(&page, &page.entries, "nothing was done by force", table)
    }
}

fn table(entries: &[AuditEntry]) -> Table {
    Table::of(["AT", "ACTOR", "ACTION", "TARGET", "REASON", "OUTCOME"], entries, |entry| {
        let colour = match entry.outcome.as_str() {
            "done" => Colour::Good,
            "denied" | "failed" => Colour::Bad,
            _ => Colour::Warning,
        };
        [
            utc(entry.at.wall_ms).into(),
            entry.actor.as_str().into(),
            entry.action.as_str().into(),
            entry.target.as_str().into(),
            or_dash(entry.reason.as_deref()),
            Cell::from(&entry.outcome).in_colour(colour),
        ]
    })
}
