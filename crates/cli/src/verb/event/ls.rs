//! `fencehold event ls`: what happened.

use fencehold_contract::{EventPage, FlatEvent};

use crate::context::Context;
use crate::follow;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold event ls
  fencehold event ls --cursor 1042 -o jsonl
  fencehold event ls --prefix job/01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55
";

const MORE: &str = "\
A store keeps its newest events only. Renewals are not events: they are many, and say nothing new.";

/// List what happened to leases and jobs, oldest first
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// Only of keys that start with this; a job's is job/ID
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only what came after this event
    #[arg(long, value_name = "SEQ")]
    cursor: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_look()?;
        let (events, next_cursor) = store
            .closing(async |store| follow::past(store, self.cursor, self.prefix.as_deref()).await)
            .await?;
        let page = EventPage { events, next_cursor };
        let events = &page.events;
        context
            .output
            .list(&page, events.iter().map(FlatEvent), "no events", || follow::table(events))?;
        Ok(DONE)
    }
}
