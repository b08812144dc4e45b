//! `fencehold lease get`: one key, and its history.

use fencehold_contract::LeaseView;
use fencehold_core::{Key, Token};

use crate::context::{Context, OpenStore};
use crate::duration::{show_exact_ms, show_ms};
use crate::follow::how_colour;
use crate::show::{Cell, Style, Table, facts, or_dash, utc};
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold lease get reports/daily
  fencehold lease get reports/daily -o json | jq .holder.owner
";

/// Show a key: its holder, its token, and how its last leases ended
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The key
    #[arg(value_name = "KEY")]
    key: Key,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        store.closing(async |store| self.get(context, store).await).await
    }

    async fn get(self, context: &Context, store: &OpenStore) -> VerbResult {
        let key = self.key;
        let lease = store
            .leases
            .get(&store.call, key.clone())
            .await
            .map_err(|error| store.explain(error))?;
        // A key that nothing is kept of is free, and no token of it was given.
        let never_held = lease.is_none();
        let lease = lease.unwrap_or(LeaseView {
            key,
            token: Token::NONE,
            holder: None,
            waiter_count: 0,
            endings: Vec::new(),
        });
        if never_held && !context.output.is_json() {
            let state = ("state", "free: never held, or forgotten".to_owned());
            context
                .output
                .text(&facts(context.output.style, [("key", lease.key.to_string()), state]))?;
            return Ok(DONE);
        }
        context.output.one(&lease, |style| {
            let mut text = details(&lease, style);
            let history = history(&lease);
            if !history.is_empty() {
                text.push('\n');
                text.push_str(&history.render(style));
            }
            text
        })?;
        Ok(DONE)
    }
}

/// What is known of a key now, line by line.
pub(crate) fn details(lease: &LeaseView, style: Style) -> String {
    let mut lines = vec![("key", lease.key.to_string())];
    match &lease.holder {
        None => {
            lines.push(("state", "free".to_owned()));
            lines.push(("last token", lease.token.to_string()));
        }
        Some(holder) => {
            lines.push(("state", "held".to_owned()));
            lines.push(("token", lease.token.to_string()));
            lines.push(("owner", holder.owner.to_string()));
            lines.extend(holder.task.as_ref().map(|task| ("task", task.to_string())));
            lines.push((
                "held for",
                format!("{}, since {}", show_ms(holder.age_ms), utc(holder.acquired_at_ms)),
            ));
            lines.push(("ttl", show_exact_ms(holder.ttl_ms)));
            lines.extend(holder.renewed_ago_ms.map(|ms| ("renewed", format!("{} ago", show_ms(ms)))));
            lines.push(("left", format!("{} unless it is renewed", show_ms(holder.remaining_ms))));
            lines.extend(holder.max_age_ms.map(|ms| ("max age", show_exact_ms(ms))));
            if holder.priority != 0 {
                lines.push(("priority", holder.priority.to_string()));
            }
            if let Some(request) = &holder.yield_request {
                let within = show_ms(request.yield_in_ms);
                let wish =
                    format!("to {} (priority {}), within {within}", request.contender, request.priority);
                lines.push(("must yield", wish));
            }
        }
    }
    lines.push(("waiting", lease.waiter_count.to_string()));
    facts(style, lines)
}

/// How the last holds ended, newest first.
pub(crate) fn history(lease: &LeaseView) -> Table {
    let mut table = Table::new(["TOKEN", "OUTCOME", "ENDED", "OWNER", "TASK", "BY", "REASON"]);
    for ending in lease.endings.iter().rev() {
        table.row([
            ending.token.into(),
            Cell::from(ending.outcome).in_colour(how_colour(ending.outcome)),
            utc(ending.ended_at_ms).into(),
            ending.owner.as_str().into(),
            or_dash(ending.task.as_ref()),
            or_dash(ending.by.as_ref()),
            or_dash(ending.reason.as_ref()),
        ]);
    }
    table
}
