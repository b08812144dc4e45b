//! `fencehold store …`: the store itself.

mod advance;
#[cfg(feature = "file")]
mod files;
#[cfg(feature = "postgres")]
mod migrate;
#[cfg(any(feature = "etcd", feature = "object"))]
mod probe;
mod status;

use fencehold_contract::{StoreUrl, memory_file_system};

use crate::context::Context;
use crate::output::note;
use crate::verb::{VerbResult, verbs};

verbs! {
    /// Create, check, back up and migrate the store
    #[command(before_help = "\
fencehold --store file:/var/lib/app/leases store create
fencehold store status
fencehold store backup monday.fencehold")]
    Verb:
    Status = status::Args,
    Create = CreateArgs,
    Advance = advance::Args,
    #[cfg(feature = "postgres")]
    Migrate = migrate::Args,
    #[cfg(any(feature = "etcd", feature = "object"))]
    Probe = probe::Args,
    #[cfg(feature = "file")]
    Backup = files::BackupArgs,
    #[cfg(feature = "file")]
    Restore = files::RestoreArgs,
    #[cfg(feature = "file")]
    Check = files::CheckArgs,
}

/// Create the store, unless it exists
#[derive(Debug, clap::Args)]
#[command(before_help = "fencehold --store file:/var/lib/app/leases store create")]
#[command(after_help = "\
It creates the directory of a file: store, or the schema of a PostgreSQL store. A store that exists stays as it is, and \
the exit code is 0: it can be run at every start.")]
pub(crate) struct CreateArgs {}

impl CreateArgs {
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        context.output.refuse_env()?;
        let place = context.place()?.for_acting(true)?;
        let store = context.open_at(&place)?;
        store
            .closing(async |store| {
                store.explained(store.leases.ping(&store.call)).await?;
                note(&format!("the store {} is there", place.url.clone().existing()));
                if let StoreUrl::File(url) = &place.url
                    && let Some(name) = memory_file_system(&url.directory)
                {
                    note(&format!("it is on {name}: a reboot takes all of it, and tokens begin anew"));
                }
                Ok(())
            })
            .await
    }
}
