//! How many requests each thing costs.

use fencehold_store_object::ObjectRequest;

use crate::fixture::{Fixture, TestHolder};
use crate::servers::ObjectServer;

/// An acquire of a free key is a read and a write; a renewal and a release, from the handle that wrote last, are a write
/// each. A key that was never held costs one more, for the floor that `store advance` may have left, and so do, once a
/// minute, limits. On Google Cloud Storage every conditional write is two requests: OpenDAL opens an upload first.
#[test]
fn an_acquire_costs_a_read_and_a_write_a_renewal_and_a_release_a_write_each() {
    for (server, write) in [(ObjectServer::Moto, 1), (ObjectServer::Azurite, 1), (ObjectServer::Gcs, 2)] {
        let fixture = Fixture::on(server);
        let a = fixture.holder("A");
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
        fixture.clock.advance_ms(60_000);
        a.gate.take();
        let held = a.take("k");
        assert_eq!(cost(&a), (2, write), "{server:?}: limits are read once a minute");
        a.renew(&held).unwrap();
        let b = fixture.holder("B");
        for _ in 0..3 {
            b.held_by("k");
            assert_eq!(cost(&b), (1, 0), "{server:?}: a waiter only reads");
        }
    }
}

/// Reads, and requests that belong to writes.
fn cost(holder: &TestHolder) -> (usize, usize) {
    let (reads, writes): (Vec<ObjectRequest>, Vec<ObjectRequest>) =
        holder.gate.take().into_iter().partition(|request| request.method == "GET");
    (reads.len(), writes.len())
}
