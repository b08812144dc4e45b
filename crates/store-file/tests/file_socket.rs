//! `file:` keeps the contract for those who reach the directory's owner through its socket.

use std::sync::{Arc, OnceLock};

use fencehold_contract::{CallContext, LeaseStore};
use fencehold_core::Namespace;
use fencehold_store_file::FileStore;
use fencehold_test_store::{ClockedTestStore, block_on};

fencehold_conformance::lease_conformance!(|| {
    let directory = Arc::new(tempfile::tempdir().expect("a temporary directory"));
    let owner = Arc::new(OnceLock::new());
    let join = move |clock: Arc<dyn fencehold_contract::clock::Clock>| {
        owner.get_or_init(|| {
            let owner = FileStore::open_or_create(directory.path(), Arc::clone(&clock)).expect("an owner");
            block_on(owner.status(&CallContext::new(Namespace::default()))).expect("an owner that serves");
            owner
        });
        FileStore::open_or_create(directory.path(), clock)
    };
    ClockedTestStore::new(join.clone()).and_other(join)
});
fencehold_conformance::job_conformance!(conformance_factory());
