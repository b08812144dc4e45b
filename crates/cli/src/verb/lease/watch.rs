//! `fencehold lease watch`: what happens to leases, as it happens.

use crate::context::Context;
use crate::follow;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold lease watch
  fencehold lease watch reports/ -o jsonl | jq -r .type
";

/// Watch what happens to leases from now on
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// Only keys that start with this text
    #[arg(value_name = "PREFIX")]
    prefix: Option<String>,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let store = context.open_to_wait()?;
        store
            .closing(async |store| {
                let status = store.leases.status(&store.call).await.map_err(|error| store.explain(error))?;
                follow::follow(store, context.output, status.newest_event_seq, self.prefix.as_deref()).await
            })
            .await?;
        Ok(DONE)
    }
}
