//! `fencehold store restore`: a backup becomes a store again, with tokens that can never repeat.

use std::path::PathBuf;

use fencehold_contract::StoreUrl;
use fencehold_core::Owner;
use fencehold_core::limits::ADVANCE_BY;

use crate::context::Context;
use crate::duration::show_exact_ms;
use crate::failure::Failure;
use crate::output::note;
use crate::verb::store::directory;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold store restore leases-monday.fencehold --by alice \\
    --store file:/var/lib/app/leases
";

const MORE: &str = "\
Tokens were granted since the backup was made. So the restored store is advanced at once: every lease in it is ended, \
every counter is raised, and nothing is granted until the longest ttl in it has passed.";

/// Put a backup into an empty directory, and advance it
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES, after_help = MORE)]
pub(crate) struct Args {
    /// The backup
    #[arg(value_name = "FILE")]
    from: PathBuf,
    /// Who does it
    #[arg(long, value_name = "NAME")]
    by: Owner,
}

impl Args {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let (place, target) = directory(context)?;
        let explain = |error| Failure::of_store(error, &place);
        // Advanced away from its place, and put there when it is: no caller meanwhile gets a token of the day of the backup.
        let aside = fencehold_store_file::ScratchDirectory::within(target.clone()).map_err(explain)?;
        let mut restored = target.clone();
        aside.path().clone_into(&mut restored.directory);
        fencehold_store_file::restore(&self.from, restored.clone()).map_err(explain)?;
        let mut there = context.place()?;
        there.url = StoreUrl::File(restored.clone());
        let store = context.open_at(&there)?;
        let advanced = store
            .closing(async |store| {
                let advanced = store.leases.advance(&store.call, self.by, ADVANCE_BY).await;
                advanced.map_err(|error| store.explain(error))
            })
            .await?;
        let whole = aside.path().join("advanced");
        fencehold_store_file::backup(restored, &whole).map_err(explain)?;
        fencehold_store_file::restore(&whole, target).map_err(explain)?;
        note(&format!(
            "{place} was restored and advanced: {} leases ended, {} keys raised, closed for {}",
            advanced.ended_count,
            advanced.key_count,
            show_exact_ms(advanced.closed_for_ms)
        ));
        Ok(DONE)
    }
}
