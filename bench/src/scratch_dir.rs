//! A directory of this run's own, and stores in it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{CallContext, LeaseStore};
use fencehold_core::Namespace;
use fencehold_load::{Failed, Target};
use fencehold_store_file::{FileOptions, FileStore};

/// A store under the load of this program.
pub(crate) fn target(store: Arc<dyn LeaseStore>) -> Result<Target, Failed> {
    let call = CallContext::new(Namespace::default()).with_timeout_ms(60_000);
    Ok(Target::new(store, call, "bench", getrandom::u64()?))
}

pub(crate) fn open(directory: &Path) -> Result<Target, Failed> {
    open_with(directory, FileOptions::default())
}

pub(crate) fn open_with(directory: &Path, options: FileOptions) -> Result<Target, Failed> {
    let store = FileStore::open_with(directory, Arc::new(SystemClock), options.creating())?;
    target(Arc::new(store))
}

pub(crate) fn open_url(url: &str) -> Result<Target, Failed> {
    target(fencehold_stores::open(&url.parse()?, Arc::new(SystemClock))?)
}

/// A directory that is gone at the end.
pub(crate) struct ScratchDir(pub(crate) PathBuf);

impl ScratchDir {
    pub(crate) fn make(within: &Path) -> std::io::Result<ScratchDir> {
        let path = within.join(format!("fencehold-bench-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(ScratchDir(path))
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
