//! `fencehold store backup`: one file, as the store is at one moment.

use std::path::PathBuf;

use crate::context::Context;
use crate::failure::Failure;
use crate::output::note;
use crate::verb::store::directory;
use crate::verb::{DONE, VerbResult};

const EXAMPLES: &str = "\
Examples:
  fencehold store backup leases-monday.fencehold \\
    --store file:/var/lib/app/leases
";

/// Copy the store into a new file, while others use it
#[derive(Debug, clap::Args)]
#[command(before_help = EXAMPLES)]
pub(crate) struct Args {
    /// The file to create
    #[arg(value_name = "FILE")]
    to: PathBuf,
}

impl Args {
    #[expect(clippy::unused_async, reason = "every verb is called alike")]
    pub(crate) async fn run(self, context: &Context) -> VerbResult {
        let (place, store) = directory(context)?;
        fencehold_store_file::backup(store, &self.to).map_err(|error| Failure::of_store(error, &place))?;
        note(&format!("{place} was copied to {}", self.to.display()));
        Ok(DONE)
    }
}
