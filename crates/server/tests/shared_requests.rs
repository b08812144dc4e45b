//! Calls of the remote store that share requests: how many requests they take, and that sharing costs no call anything that it has
//! alone.

use std::sync::Arc;

use fencehold_contract::clock::{ManualClock, SystemClock};
use fencehold_contract::job::NewJob;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseStore, StoreError, StoreUrl,
};
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_server::Server;
use fencehold_server::access::Access;
use fencehold_store_remote::RemoteStore;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::security::gated_store::{GatedStore, HeldCall};

const CALLERS: u8 = 64;

/// A server whose acquisitions in the namespace `gated` go on only when they are let, and a client of it.
struct GatedServer {
    store: Arc<GatedStore>,
    remote: Arc<RemoteStore>,
    // Last, so that the client goes before what it talks to.
    runtime: Runtime,
}

impl GatedServer {
    fn open() -> Self {
        let runtime = crate::plain_client::runtime();
        let clock = ManualClock::new();
        let store = GatedStore::new(&clock, "gated", HeldCall::Acquisitions);
        let server = Server::new(store.clone(), Arc::new(clock), Access::default());
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move { server.serve(listener, std::future::pending()).await });
        let StoreUrl::Remote(url) = format!("http://{address}").parse().unwrap() else { unreachable!() };
        let remote = Arc::new(RemoteStore::open(&url, Arc::new(SystemClock)).unwrap());
        GatedServer { store, remote, runtime }
    }

    fn sent(&self) -> u64 {
        self.remote.requests_sent().unwrap()
    }

    /// Acquires a key of this caller's own, beside what others do.
    fn acquires(&self, caller: u8, call: &CallContext) -> JoinHandle<Result<AcquiredLease, StoreError>> {
        let (remote, call) = (Arc::clone(&self.remote), call.clone());
        self.runtime.spawn(async move { remote.acquire(&call, request(caller)).await })
    }

    fn held_count(&self, call: &CallContext) -> u64 {
        self.runtime.block_on(self.store.status(call)).unwrap().held_count
    }
}

fn gated() -> CallContext {
    CallContext::new(Namespace::new("gated").unwrap())
}

fn key(caller: u8) -> Key {
    Key::new(format!("k/{caller}")).unwrap()
}

fn hold(caller: u8) -> HoldId {
    HoldId::from_random([caller; 16])
}

fn request(caller: u8) -> AcquireLeaseRequest {
    AcquireLeaseRequest::new(key(caller), hold(caller), Owner::new("ada").unwrap(), 30_000)
}

fn job(nth: u8) -> NewJob {
    let (queue, kind) = (QueueName::new("q").unwrap(), JobKind::new("a").unwrap());
    NewJob::new(JobId::from_random(1, [nth; 10]), queue, kind, "1")
}

/// While the first requests are held up at the server, the others gather; and what has gathered goes out together.
#[test]
fn sixty_four_callers_at_once_take_a_few_requests() {
    let server = GatedServer::open();
    let before = server.sent();
    let callers: Vec<_> = (0..CALLERS).map(|caller| server.acquires(caller, &gated())).collect();
    server.store.let_in.add_permits(usize::from(CALLERS));
    for caller in callers {
        assert_eq!(server.runtime.block_on(caller).unwrap().unwrap().grant.token.get(), 1);
    }
    let requests = server.sent() - before;
    // Two go out alone. The others take one more, or some if this machine is so slow that gathering ends in between.
    assert!(requests <= u64::from(CALLERS / 4), "{requests} requests");
    assert_eq!(server.held_count(&gated()), u64::from(CALLERS));
}

#[test]
fn a_lone_caller_sends_one_request_a_call() {
    let server = GatedServer::open();
    let call = CallContext::new(Namespace::default());
    let before = server.sent();
    server.runtime.block_on(async {
        for caller in 0..10 {
            let acquired = server.remote.acquire(&call, request(caller)).await.unwrap();
            let held = HoldRef { key: key(caller), hold_id: hold(caller), token: acquired.grant.token };
            server.remote.renew(&call, vec![held.clone()]).await.unwrap();
            server.remote.release(&call, vec![held]).await.unwrap();
        }
    });
    assert_eq!(server.sent() - before, 30);
}

/// Acquisitions are held up at the server; jobs are enqueued beside them, in the same namespace.
#[test]
fn those_that_are_held_up_hold_up_no_others() {
    let server = GatedServer::open();
    let held_up: Vec<_> = (0..CALLERS).map(|caller| server.acquires(caller, &gated())).collect();
    let jobs = |nth: u8| {
        let remote = Arc::clone(&server.remote);
        server.runtime.spawn(async move {
            let jobs = LeaseStore::jobs(&*remote).unwrap();
            jobs.enqueue(&gated(), vec![job(nth)]).await
        })
    };
    let enqueued: Vec<_> = (0..CALLERS).map(jobs).collect();
    for enqueued in enqueued {
        let results = server.runtime.block_on(enqueued).unwrap().unwrap();
        assert!(results[0].is_ok(), "{results:?}");
    }
    assert!(held_up.iter().all(|caller| !caller.is_finished()), "the gate is closed");
    server.store.let_in.add_permits(10_000);
    for caller in held_up {
        server.runtime.block_on(caller).unwrap().unwrap();
    }
}

/// P8: what is granted to a caller that has gone is given back, also where it shared a request.
#[test]
fn a_caller_that_goes_away_leaves_nothing_held() {
    let server = GatedServer::open();
    let callers: Vec<_> = (0..CALLERS).map(|caller| server.acquires(caller, &gated())).collect();
    let (gone, here): (Vec<_>, Vec<_>) = callers.into_iter().enumerate().partition(|(nth, _)| nth % 2 == 0);
    for (_, caller) in &gone {
        caller.abort();
    }
    server.store.let_in.add_permits(10_000);
    for (_, caller) in here {
        server.runtime.block_on(caller).unwrap().unwrap();
    }
    crate::plain_client::eventually("what no caller took is given back", || {
        (server.held_count(&gated()) == u64::from(CALLERS / 2)).then_some(())
    });
}
