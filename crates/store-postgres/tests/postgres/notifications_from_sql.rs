//! Holders learn of what is done by plain SQL, too.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use fencehold_contract::{HoldChange, Subscription};
use fencehold_core::{Key, Namespace};
use fencehold_test_servers::calls::{OneByOne as _, lease_request};
use fencehold_test_store::TestStore as _;

use crate::session::{Calls, Session};
use crate::test_store::PostgresTestStore;

/// Longer than any notification takes.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What the listener of a handle heard; `None`: that it may have missed something.
fn hear(test_store: &PostgresTestStore) -> (mpsc::Receiver<Option<(Namespace, Key)>>, Subscription) {
    let (sender, heard) = mpsc::channel();
    let subscription = test_store.store().on_hold_change(Arc::new(move |change| {
        let _ = sender.send(match change {
            HoldChange::Of(namespace, key) => Some((namespace.clone(), key.clone())),
            HoldChange::Missed => None,
        });
    }));
    (heard, subscription.unwrap())
}

#[test]
fn a_holder_hears_at_once_of_a_revocation_by_plain_sql() {
    let test_store = PostgresTestStore::new();
    let (heard, _subscription) = hear(&test_store);
    test_store.store().take(lease_request("k", 1, "A"));
    assert_eq!(heard.recv_timeout(TIMEOUT), Ok(None), "it listens");
    let operator = Session::new(&test_store);
    operator.value(&Calls(test_store.schema).revoke("k"));
    let (namespace, key) = heard.recv_timeout(TIMEOUT).unwrap().unwrap();
    assert_eq!((namespace.as_str(), key.as_str()), ("default", "k"));
}
