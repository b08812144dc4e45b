//! Holders learn of what is done by plain SQL, too.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use fencehold_contract::{HoldChange, Subscription};
use fencehold_core::{Key, Namespace};
use fencehold_test_store::Arena as _;

use crate::arena::PostgresArena;
use crate::fences::take;
use crate::session::{Calls, Session};

/// Longer than any notification takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// What the listener of a handle heard; `None`: that it may have missed something.
fn hear(arena: &PostgresArena) -> (mpsc::Receiver<Option<(Namespace, Key)>>, Subscription) {
    let (sender, heard) = mpsc::channel();
    let subscription = arena.store().on_hold_change(Arc::new(move |change| {
        let _ = sender.send(match change {
            HoldChange::Of(namespace, key) => Some((namespace.clone(), key.clone())),
            HoldChange::Missed => None,
        });
    }));
    (heard, subscription.unwrap())
}

#[test]
fn a_holder_hears_at_once_of_a_revocation_by_plain_sql() {
    let arena = PostgresArena::new();
    let (heard, _subscription) = hear(&arena);
    take(&arena.store(), "k", 1, "A");
    assert_eq!(heard.recv_timeout(PATIENCE), Ok(None), "it listens");
    let operator = Session::new(&arena);
    operator.value(&Calls(arena.schema).revoke("k"));
    let (namespace, key) = heard.recv_timeout(PATIENCE).unwrap().unwrap();
    assert_eq!((namespace.as_str(), key.as_str()), ("default", "k"));
}
