//! What one acquire of a free key, a renewal and a release cost, in requests to the cluster.

use fencehold_store_etcd::EtcdRequest;

use crate::test_client::people;

/// Three to take a free key, two to renew, two to give it back.
#[test]
fn an_acquire_costs_three_requests_a_renewal_two_and_a_release_two() {
    let [a] = people(["A"]);
    // The first acquisition of a store also writes its mark, in the same request.
    for name in ["first", "k", "k"] {
        let held = a.take(name);
        assert_eq!(
            a.gate.taken(),
            [EtcdRequest::Read, EtcdRequest::LeaseGrant, EtcdRequest::Write],
            "{name}"
        );
        a.renew(&held).unwrap();
        assert_eq!(a.gate.taken(), [EtcdRequest::KeepAlive, EtcdRequest::Read], "{name}");
        a.release(&held).unwrap();
        assert_eq!(a.gate.taken(), [EtcdRequest::Write, EtcdRequest::LeaseRevoke], "{name}");
    }
}

/// A handle that did not make the grant must look first: one request more.
#[test]
fn another_handle_looks_first() {
    let [a, b] = people(["A", "B"]);
    let held = a.take("k");
    b.renew(&held).unwrap();
    assert_eq!(b.gate.taken(), [EtcdRequest::Read, EtcdRequest::KeepAlive, EtcdRequest::Read]);
    b.release(&held).unwrap();
    assert_eq!(b.gate.taken(), [EtcdRequest::Read, EtcdRequest::Write, EtcdRequest::LeaseRevoke]);
}
