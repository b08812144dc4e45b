//! `fencehold store …`: the store itself.

mod advance;
#[cfg(feature = "file")]
mod backup;
#[cfg(feature = "file")]
mod check;
mod create;
#[cfg(feature = "postgres")]
mod migrate;
#[cfg(any(feature = "etcd", feature = "object"))]
mod probe;
#[cfg(feature = "file")]
mod restore;
mod status;

#[cfg(feature = "file")]
use fencehold_contract::{FileUrl, StoreUrl};

#[cfg(feature = "file")]
use crate::context::Context;
#[cfg(feature = "file")]
use crate::exit_code::ExitStatus;
#[cfg(feature = "file")]
use crate::failure::Failure;
use crate::verb::group;

const EXAMPLES: &str = "\
Examples:
  fencehold --store file:/var/lib/app/leases store create
  fencehold store status
  fencehold store backup monday.fencehold
";

group! {
    /// Create, check, back up and migrate the store
    EXAMPLES:
    Status = status,
    Create = create,
    Advance = advance,
    #[cfg(feature = "postgres")]
    Migrate = migrate,
    #[cfg(any(feature = "etcd", feature = "object"))]
    Probe = probe,
    #[cfg(feature = "file")]
    Backup = backup,
    #[cfg(feature = "file")]
    Restore = restore,
    #[cfg(feature = "file")]
    Check = check,
}

/// The directory of a `file:` store, and its name for people. Copying and checking files is for that store only.
#[cfg(feature = "file")]
fn directory(context: &Context) -> Result<(String, FileUrl), Failure> {
    let url = context.place()?.url;
    match &url {
        StoreUrl::File(file) => Ok((url.to_string(), file.clone())),
        other => {
            let what = format!("{other} is not a directory: backup, restore and check are for file: stores");
            Err(Failure::new(ExitStatus::Usage, what))
        }
    }
}
