//! `fencehold lease get`: one key, and its history.

use fencehold_contract::LeaseView;
use fencehold_core::Key;

use crate::context::{Context, Store};
use crate::duration::{show_exact_ms, show_ms};
use crate::follow::how_colour;
use crate::show::{Cell, Palette, Table, facts, or_dash, utc};
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold lease get reports/daily
  fencehold lease get reports/daily -o json | jq .holder.owner
";

/// Show one key: its holder, its token, and how the last holds ended
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Which key
    #[arg(value_name = "KEY")]
    key: Key,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open_to_look()?;
        store.closing(async |store| self.get(context, store).await).await
    }

    async fn get(self, context: &Context, store: &Store) -> Outcome {
        let key = self.key;
        let lease = store
            .leases
            .get(&store.call, key.clone())
            .await
            .map_err(|error| store.explain(error))?;
        let Some(lease) = lease else {
            // In the shape of any other key, so that programs need no second way.
            let nothing = serde_json::json!(
                { "key": key, "token": 0, "holder": null, "waiters": 0, "endings": [] }
            );
            let state = ("state", "never held, or long forgotten".to_owned());
            context
                .output
                .one(&nothing, |palette| facts(palette, [("key", key.to_string()), state]))?;
            return Ok(DONE);
        };
        context.output.one(&lease, |palette| {
            let mut text = details(&lease, palette);
            let history = history(&lease);
            if !history.is_empty() {
                text.push('\n');
                text.push_str(&history.render(palette));
            }
            text
        })?;
        Ok(DONE)
    }
}

/// What is known of a key now, line by line.
pub(crate) fn details(lease: &LeaseView, palette: Palette) -> String {
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
            lines.extend(holder.renewed_ago_ms.map(|ms| ("last beat", format!("{} ago", show_ms(ms)))));
            lines.push(("left", format!("{} unless it renews", show_ms(holder.remaining_ms))));
            lines.extend(holder.max_age_ms.map(|ms| ("at most", format!("{} in all", show_exact_ms(ms)))));
            if holder.priority != 0 {
                lines.push(("priority", holder.priority.to_string()));
            }
            if let Some(notice) = &holder.yield_request {
                let within = format!(", within {}", show_ms(notice.yield_in_ms));
                let wish = format!("asked by {} (priority {}){within}", notice.contender, notice.priority);
                lines.push(("yield", wish));
            }
        }
    }
    lines.push(("in line", lease.waiter_count.to_string()));
    facts(palette, lines)
}

/// How the last holds ended, newest first.
pub(crate) fn history(lease: &LeaseView) -> Table {
    let mut table = Table::new(["TOKEN", "ENDED", "WHEN", "OWNER", "TASK", "BY", "REASON"]);
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
