//! `fencehold store status`: who serves it, and how much there is.

use crate::context::Context;
use crate::show::facts;
use crate::verb::{DONE, Outcome};

const EXAMPLES: &str = "\
Examples:
  fencehold store status
  fencehold store status -o json | jq .owner_pid
";

/// Show who serves the store, and how much is in it
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> Outcome {
        let store = context.open()?;
        store
            .closing(async |store| {
                let status = store.leases.status(&store.call).await.map_err(|error| store.explain(error))?;
                context.output.one(&status, |palette| {
                    let mut lines = vec![("store", store.name.clone())];
                    lines.extend(
                        status.owner_pid.map(|pid| ("served by", format!("process {pid}{}", us(pid)))),
                    );
                    lines.extend(status.epoch.map(|epoch| ("epoch", epoch.to_string())));
                    lines.push(("keys", status.keys.to_string()));
                    lines.push(("held", status.held.to_string()));
                    lines.push(("in line", status.waiters.to_string()));
                    lines.push(("last event", status.last_event.to_string()));
                    if status.set_aside > 0 {
                        lines.push(("set aside", format!("{} rows that cannot be read", status.set_aside)));
                    }
                    facts(palette, lines)
                })
            })
            .await?;
        Ok(DONE)
    }
}

/// Whoever asks first serves: for a moment that may be this very process.
fn us(pid: u32) -> &'static str {
    if pid == std::process::id() { " (this one: nobody else was there)" } else { "" }
}
