//! `fencehold store create`: makes the store that was named.

use fencehold_contract::{StoreUrl, memory_file_system};

use crate::context::Context;
use crate::output::note;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold --store file:/var/lib/app/leases store create
";

const MORE: &str = "\
It creates the directory of a file: store, or the schema of a PostgreSQL store. A store that exists stays as it is, and \
the exit code is 0: it can be run at every start.";

/// Create the store, unless it exists
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let place = context.place()?.for_acting(true)?;
        let store = context.open_at(&place)?;
        store
            .closing(async |store| {
                store.leases.ping(&store.call).await.map_err(|error| store.explain(error))?;
                note(&format!("the store {} is there", place.url.clone().existing()));
                if let StoreUrl::File(url) = &place.url
                    && let Some(name) = memory_file_system(&url.directory)
                {
                    note(&format!("it is on {name}: a reboot takes all of it, and tokens begin anew"));
                }
                Ok(DONE)
            })
            .await
    }
}
