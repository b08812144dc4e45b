//! What one acquire of a free key, a renewal and a release cost, in requests to the cluster.

use fencehold_store_etcd::Request;

use crate::people::people;

/// Three to take a free key, two to renew, two to give it back.
#[test]
fn an_acquire_costs_three_requests_a_renewal_two_and_a_release_two() {
    let [a] = people(["A"]);
    // The first acquisition of a store also writes its mark, in the same request.
    for name in ["first", "k", "k"] {
        let held = a.take(name);
        assert_eq!(a.gate.taken(), [Request::Read, Request::LeaseGrant, Request::Write], "{name}");
        a.renew(&held).unwrap();
        assert_eq!(a.gate.taken(), [Request::KeepAlive, Request::Read], "{name}");
        a.release(&held).unwrap();
        assert_eq!(a.gate.taken(), [Request::Write, Request::LeaseRevoke], "{name}");
    }
}

/// A handle that did not make the grant must look first: one request more.
#[test]
fn another_handle_looks_first() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("k");
    b.renew(&held).unwrap();
    assert_eq!(b.gate.taken(), [Request::Read, Request::KeepAlive, Request::Read]);
    b.release(&held).unwrap();
    assert_eq!(b.gate.taken(), [Request::Read, Request::Write, Request::LeaseRevoke]);
}
