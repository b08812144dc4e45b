//! Clusters that want to know who asks, or that are not to be overheard; and what a member says of itself.

use std::sync::Arc;

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, LeaseStore, StoreError, StoreUrl};
use fencehold_store_etcd::{EtcdFinding, EtcdStore, EtcdVerdict};
use fencehold_test_servers::calls::{lease_request, unavailable, unusable};
use fencehold_test_servers::etcd::{MEMBERS, SingleMember};
use fencehold_test_store::block_on;

use crate::call;
use crate::test_client::people;

/// Of an authority for tests.
fn certificate(name: &str) -> String {
    fencehold_test_servers::certificate(name).display().to_string()
}

fn open(url: &str) -> Result<EtcdStore, StoreError> {
    match url.parse().unwrap() {
        StoreUrl::Etcd(url) => EtcdStore::open(&url, Arc::new(SystemClock)),
        other => panic!("{other}"),
    }
}

fn take(store: &EtcdStore) -> Result<AcquiredLease, StoreError> {
    let request = AcquireLeaseRequest { ttl_ms: 5_000, ..lease_request("k", 7, "A") };
    block_on(store.acquire(&call().with_timeout_ms(30_000), request))
}

/// A cluster with users is served with the right password; without, the error says what is wanted, and repeats nothing.
#[test]
fn a_user_shows_its_password_and_nobody_else_gets_in() {
    let member = SingleMember::with_users("root", "s3cret%");
    let port = member.port;
    let store = open(&format!("etcd://root:s3cret%25@127.0.0.1:{port}/auth")).unwrap();
    assert_eq!(take(&store).unwrap().grant.token.get(), 1);
    for (url, says) in [
        (format!("etcd://root:wr0ng@127.0.0.1:{port}/auth"), "invalid user ID or password"),
        (format!("etcd://127.0.0.1:{port}/auth"), "wants a user"),
    ] {
        match take(&open(&url).unwrap()) {
            Err(StoreError::Unusable { store: place, message: why }) => {
                assert!(why.contains(says), "{why}");
                assert!(!format!("{place}{why}").contains("wr0ng"));
            }
            other => panic!("{other:?}"),
        }
    }
}

/// With TLS, each side shows a certificate, and the members' is checked against the authority that the URL names.
#[test]
fn tls_checks_who_answers_and_who_asks() {
    let member = SingleMember::with_tls();
    let [ca, cert, key] = ["ca.pem", "client.pem", "client.key"].map(certificate);
    let url = |options: &str| format!("etcd://127.0.0.1:{}/tls?{options}", member.port);
    let store = open(&url(&format!("ca={ca}&cert={cert}&key={key}"))).unwrap();
    assert_eq!(take(&store).unwrap().grant.token.get(), 1);
    let refused = |options: &str| {
        let stranger = open(&url(options)).unwrap();
        unavailable(block_on(stranger.status(&call().with_timeout_ms(1_000))))
    };
    // Who shows no certificate is cut off; whether the reason arrives before the cut is chance.
    refused(&format!("ca={ca}"));
    // Checked against another authority: the server's own certificate never signed anything.
    let why = refused(&format!("ca={}&cert={cert}&key={key}", certificate("server.pem")));
    assert!(why.contains("certificate"), "{why}");
    let why = unusable(open("etcd://127.0.0.1/tls?ca=/no/such/file").map(drop));
    assert!(why.contains("/no/such/file"), "{why}");
}

/// The probe passes a sound cluster, with a warning for each member of an old version, and leaves nothing behind.
#[test]
fn the_probe_passes_with_a_warning_about_old_versions() {
    let [a] = people(["A"]);
    let members = block_on(a.store.members(&call())).unwrap();
    let old = members.iter().filter(|it| it.warning.is_some()).count();
    let findings = block_on(a.store.probe(&call())).unwrap();
    let failed = |it: &&EtcdFinding| matches!(it.verdict, EtcdVerdict::Failed(_));
    assert_eq!(findings.iter().find(failed), None);
    let warned = |it: &&EtcdFinding| matches!(it.verdict, EtcdVerdict::Warned(_));
    let warned = findings.iter().filter(warned).count();
    assert_eq!((findings.len(), warned), (4 + MEMBERS, old));
}

/// Every member says its version, and one that can end live leases is warned of.
#[test]
fn a_member_of_an_old_version_is_warned_of() {
    let [a] = people(["A"]);
    let members = block_on(a.store.members(&call())).unwrap();
    assert_eq!(members.len(), MEMBERS);
    for member in members {
        let parts: Vec<u32> = member.version.split('.').map_while(|part| part.parse().ok()).collect();
        let fixed = parts >= vec![3, 5, 13] || (parts[..2] == [3, 4] && parts[2] >= 31);
        assert_eq!(member.warning.is_none(), fixed, "{member:?}");
    }
}
