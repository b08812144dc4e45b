//! How many requests each thing costs.

use fencehold_store_object::Request;

use crate::servers::Server;
use crate::stage::{Holder, Stage};

/// An acquire of a free key is a read and a write; a renewal and a release, from the handle that wrote last, are a write
/// each. A key that was never held costs one more, for the floor that `store advance` may have left, and so do, once a
/// minute, limits. On Google Cloud Storage every conditional write is two requests: OpenDAL opens an upload first.
#[test]
fn an_acquire_costs_a_read_and_a_write_a_renewal_and_a_release_a_write_each() {
    for (server, write) in [(Server::Moto, 1), (Server::Azurite, 1), (Server::Gcs, 2)] {
        let stage = Stage::on(server);
        let a = stage.holder("A");
        let held = a.take("k");
        assert_eq!(cost(&a), (3, write), "{server:?}: a key that was never held, and limits");
        a.take("another");
        assert_eq!(cost(&a), (2, write), "{server:?}: a key that was never held");
        a.release(&held).unwrap();
        assert_eq!(cost(&a), (0, write), "{server:?}: a release");
        let held = a.take("k");
        assert_eq!(cost(&a), (1, write), "{server:?}: a free key");
        for _ in 0..3 {
            a.renew(&held).unwrap();
            assert_eq!(cost(&a), (0, write), "{server:?}: a renewal");
        }
        a.release(&held).unwrap();
        stage.clock.advance(60_000);
        a.gate.take();
        let held = a.take("k");
        assert_eq!(cost(&a), (2, write), "{server:?}: limits are read once a minute");
        a.renew(&held).unwrap();
        let b = stage.holder("B");
        for _ in 0..3 {
            b.held_by("k");
            assert_eq!(cost(&b), (1, 0), "{server:?}: a waiter only reads");
        }
    }
}

/// Reads, and requests that belong to writes.
fn cost(holder: &Holder) -> (usize, usize) {
    let (reads, writes): (Vec<Request>, Vec<Request>) =
        holder.gate.take().into_iter().partition(|request| request.method == "GET");
    (reads.len(), writes.len())
}
