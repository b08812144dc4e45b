//! A directory of this run's own, and stores in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{LeaseStore, StoreError};
use fencehold_store_file::{FileOptions, FileStore};

pub(super) fn open_store(directory: &Path) -> Result<Arc<dyn LeaseStore>, StoreError> {
    open_store_with(directory, FileOptions::default())
}

pub(super) fn open_store_with(
    directory: &Path,
    options: FileOptions,
) -> Result<Arc<dyn LeaseStore>, StoreError> {
    Ok(Arc::new(FileStore::open_with(directory, Arc::new(SystemClock), options.creating())?))
}

/// A directory that is gone at the end.
pub(super) struct Home(pub(super) PathBuf);

impl Home {
    pub(super) fn make(within: &Path) -> std::io::Result<Home> {
        let path = within.join(format!("fencehold-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Home(path))
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
