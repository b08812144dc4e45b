//! `fencehold event watch`: what happened, and then what happens.

use crate::context::Context;
use crate::follow;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold event watch
  fencehold event watch --prefix reports/ -o jsonl | jq -r .type
";

/// Watch what happens to leases and jobs, after what has happened already
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only of keys that start with this; a job's is job/ID
    #[arg(long, value_name = "TEXT")]
    prefix: Option<String>,
    /// Begin after this event
    #[arg(long, value_name = "SEQ")]
    cursor: Option<u64>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_wait()?;
        store
            .closing(async |store| {
                let prefix = self.prefix.as_deref();
                let (events, next) = follow::past(store, self.cursor, prefix).await?;
                events.iter().try_for_each(|event| follow::print(context.output, event))?;
                follow::follow(store, context.output, next, prefix).await
            })
            .await?;
        Ok(DONE)
    }
}
