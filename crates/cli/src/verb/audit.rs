//! `fencehold audit`: who did what with force, from where, and why.

use crate::context::Context;
use crate::duration::parse_ms;
use crate::show::{Cell, Colour, Table, or_dash, utc};
use crate::tokens::Line;
use crate::verb::{DONE, Outcome};
use crate::whereabouts::Whereabouts;

const EXAMPLES: &str = "\
Examples:
  fencehold audit
  fencehold audit --since 24h -o jsonl
  fencehold --namespace team-a audit --only-namespace
";

/// Show what was done with force through a server, and to its tokens: who, from where, what, why
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Not older than this: 24h, 7d
    #[arg(long, value_name = "TIME", value_parser = parse_ms)]
    since: Option<u64>,
    /// Only after this number
    #[arg(long, value_name = "NUMBER")]
    after: Option<u64>,
    /// The latest so many
    #[arg(long, value_name = "COUNT", default_value_t = 200)]
    limit: u64,
    /// Only what was done in the namespace that is named by --namespace
    #[arg(long)]
    only_namespace: bool,
    #[command(flatten)]
    whereabouts: Whereabouts,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let only = self.only_namespace.then(|| context.namespace.clone());
        let tokens = self.whereabouts.tokens(context)?;
        let rows = tokens.audit(self.after, self.since, self.limit, only).await?;
        context.output.many(&rows, "nothing was done with force", || table(&rows))?;
        Ok(DONE)
    }
}

fn table(rows: &[Line]) -> Table {
    let mut table = Table::new(["NUMBER", "WHEN", "WHO", "FROM", "NAMESPACE", "ACT", "TO", "WHY", "OUTCOME"]);
    for row in rows {
        let colour = match row.outcome.as_str() {
            "done" => Colour::Good,
            "denied" | "failed" => Colour::Bad,
            _ => Colour::Warning,
        };
        table.row([
            row.seq.into(),
            utc(row.at_wall_ms).into(),
            row.who.as_str().into(),
            row.from.as_str().into(),
            row.namespace.as_str().into(),
            row.act.as_str().into(),
            row.target.as_str().into(),
            or_dash(row.reason.as_deref()),
            Cell::from(&row.outcome).in_colour(colour),
        ]);
    }
    table
}
