//! `fencehold event …`: what happened to leases and jobs.

use fencehold_contract::{EventPage, FlatEvent};

use crate::context::Context;
use crate::follow;
use crate::verb::{VerbResult, verbs};

verbs! {
    /// List and watch what happens to leases and jobs
    #[command(before_help = "\
fencehold event ls --prefix reports/
fencehold event watch")]
    Verb:
    Ls = LsArgs,
    Watch = WatchArgs,
}

/// List what happened to leases and jobs, oldest first
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold event ls
fencehold event ls --cursor 1042 -o jsonl
fencehold event ls --prefix job/01990f3e-5d1c-7a41-9d07-3c0c1f0b6a55")]
#[command(after_help = "\
A store keeps its newest events only. Renewals are not events: they are many, and say nothing new.")]
pub(crate) struct LsArgs {
    /// Only of keys that start with this; a job's is job/ID
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Only what came after this event
    #[arg(long, value_name = "SEQ")]
    cursor: Option<u64>,
}

impl LsArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let prefix = self.prefix.as_deref();
        let (events, next_cursor) = context
            .look(async |store| follow::past(store, self.cursor, prefix).await)
            .await?;
        let page = EventPage { events, next_cursor };
        let events = &page.events;
        context
            .output
            .list_as(&page, events.iter().map(FlatEvent), "no events", || follow::table(events))
    }
}

/// Watch what happens to leases and jobs, after what has happened already
#[derive(Debug, clap::Args)]
#[command(before_help = "\
fencehold event watch
fencehold event watch --prefix reports/ -o jsonl | jq -r .type")]
pub(crate) struct WatchArgs {
    /// Only of keys that start with this; a job's is job/ID
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Begin after this event
    #[arg(long, value_name = "SEQ")]
    cursor: Option<u64>,
}

impl WatchArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let (output, prefix) = (context.output, self.prefix.as_deref());
        let store = context.open_to_wait()?;
        store
            .closing(async |store| {
                let (events, next) = follow::past(store, self.cursor, prefix).await?;
                events.iter().try_for_each(|event| follow::print(output, event))?;
                follow::follow(store, output, next, prefix).await
            })
            .await
    }
}
