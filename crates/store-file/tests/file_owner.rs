//! `file:` keeps the contract in the process that owns the directory.

use fencehold_store_file::FileStore;
use fencehold_test_store::ClockedTestStore;

fencehold_conformance::lease_conformance!(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    ClockedTestStore::new(move |clock| FileStore::open_or_create(directory.path(), clock)).that_restarts()
});
fencehold_conformance::job_conformance!(conformance_factory());
