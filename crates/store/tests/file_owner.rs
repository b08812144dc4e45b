//! `file:` keeps the contract in the process that owns the directory.

use fencehold_store::conformance::ClockArena;
use fencehold_store::file::FileStore;

fencehold_store::lease_conformance!(|| {
    let directory = tempfile::tempdir().expect("a temporary directory");
    ClockArena::new(move |clock| FileStore::open_or_create(directory.path(), clock)).that_restarts()
});
fencehold_store::job_conformance!(conformance_factory());
