//! The contract holds through `http://`, against a real server process on `memory:` and on `file:`.

use crate::clocked::test_store::ServerTestStore;

mod on_memory {
    fencehold_conformance::lease_conformance!(|| super::ServerTestStore::on(None));
    fencehold_conformance::job_conformance!(conformance_factory());
}

mod on_file {
    fencehold_conformance::lease_conformance!(|| super::ServerTestStore::on(Some(
        tempfile::tempdir().unwrap()
    )));
    fencehold_conformance::job_conformance!(conformance_factory());
}

mod in_batches {
    fencehold_conformance::lease_conformance!(|| super::ServerTestStore::batching(None));
    fencehold_conformance::job_conformance!(conformance_factory());
}
