//! The owner of a directory is killed after it has kept a grant and before it has answered: the caller gets that grant from the
//! next owner, and if it has gone by then, the grant is given back.
#![cfg(feature = "file")]

use std::sync::Arc;
use std::task::{Context, Waker};

use fencehold_contract::clock::SystemClock;
use fencehold_contract::{AcquireLeaseRequest, CallContext, LeaseStore, LeaseView};
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_store_file::FileStore;
use fencehold_test_store::block_on;

use crate::support::{DirectoryOwner, Gates, TestDirectory, eventually};

/// R13, with real processes.
#[test]
fn a_grant_whose_answer_died_with_the_owner_is_had_from_the_next() {
    let dir = TestDirectory::new();
    let owner = DirectoryOwner::start(&dir);
    let gates = Gates::of(&dir);
    gates.close("kept");
    let mut asker = dir.start("lease acquire k --ttl 60s -o json");
    eventually("the owner has kept the grant", || gates.reached("kept") == Some(owner.id()));
    owner.kill();
    gates.open("kept");
    let said = asker.finish();
    assert_eq!((said.code, said.json()["token"].as_u64()), (0, Some(1)), "{said:?}");
    let granted = |event: &serde_json::Value| event["key"] == "k" && event["type"] == "lease_acquired";
    let grants = dir.events().into_iter().filter(granted).count();
    assert_eq!(grants, 1, "one grant, told by the next owner");
}

/// No caller knows of such a lease: no response to its hold id ever arrived.
#[test]
fn a_grant_that_is_resumed_by_the_next_owner_and_finds_its_asker_gone_is_given_back() {
    let dir = TestDirectory::new();
    let owner = DirectoryOwner::start(&dir);
    let gates = Gates::of(&dir);
    let store = FileStore::open_or_create(&dir.path("leases"), Arc::new(SystemClock)).unwrap();
    let call = CallContext::new(Namespace::default()).with_timeout_ms(60_000);
    let key = Key::new("k").unwrap();
    let view = || -> LeaseView { block_on(store.get(&call, key.clone())).unwrap().unwrap() };
    assert_eq!(block_on(store.status(&call)).unwrap().owner_pid, Some(owner.id()));

    gates.close("kept");
    let hold = HoldId::from_random([7; 16]);
    let request = AcquireLeaseRequest::new(key.clone(), hold, Owner::new("asker").unwrap(), 60_000);
    let mut asking = store.acquire(&call, request);
    let mut context = Context::from_waker(Waker::noop());
    let mut is_asking = || assert!(asking.as_mut().poll(&mut context).is_pending());
    eventually("the owner has kept the grant", || {
        is_asking();
        gates.reached("kept") == Some(owner.id())
    });
    // The next owner is this process. It is held before it can answer anything.
    gates.close("confirm");
    owner.kill();
    gates.open("kept");
    eventually("this process serves", || {
        is_asking();
        gates.reached("confirm") == Some(std::process::id())
    });
    // By now the question was handed back to be asked here; this asks it, and then the asker goes.
    is_asking();
    drop(asking);
    gates.open("confirm");

    eventually("it is given back", || view().holder.is_none());
    let ending = view().endings.pop().unwrap();
    assert_eq!((ending.token.get(), ending.outcome), (1, LeaseOutcome::Abandoned));
}
