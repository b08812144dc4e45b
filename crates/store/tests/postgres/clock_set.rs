//! The database's clock is wall time: what becomes of leases when it is set.

use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_store::conformance::{Arena as _, block_on};
use fencehold_store::{AcquireRequest, Call, HoldRef};

use crate::arena::PostgresArena;
use crate::session::{Calls, Session};

const HOUR_MS: i64 = 60 * 60 * 1000;

fn call() -> Call {
    Call::new(Namespace::default())
}

fn request(name: &str, hold: u8, owner: &str) -> AcquireRequest {
    let hold = HoldId::from_random([hold; 16]);
    AcquireRequest::new(Key::new(name).unwrap(), hold, Owner::new(owner).unwrap(), 30_000)
}

/// R20: what was taken before anybody noticed has a larger token, so the old holder's fence is refused; from then on
/// nothing that was held runs out for one ttl.
#[test]
fn a_clock_set_forward_is_noticed_by_a_renewal_and_ends_nothing_more() {
    let arena = PostgresArena::new();
    let (store, calls, user) = (arena.store(), Calls(arena.schema), Session::new(&arena));
    let take = |name: &str, hold: u8| {
        let request = request(name, hold, "A");
        let acquired = block_on(store.acquire(&call(), request.clone())).unwrap();
        HoldRef { key: acquired.key, hold: request.hold, token: acquired.grant.token }
    };
    let (renewed, taken, idle) = (take("renewed", 1), take("taken", 2), take("idle", 3));
    block_on(store.renew(&call(), vec![renewed.clone()])).unwrap().answers[0]
        .as_ref()
        .unwrap();
    // The clock jumps, and in the same moment somebody takes a key, before anybody can notice.
    user.value(&format!(
        "UPDATE {}.test_clock SET at_ms = at_ms + {HOUR_MS}; {}",
        arena.schema,
        calls.acquire("taken", 9, "B")
    ));
    assert_eq!(user.run(&calls.fence("taken", taken.token.get())).unwrap_err().0, "FH001");
    let answers = block_on(store.renew(&call(), vec![renewed.clone(), taken])).unwrap().answers;
    assert_eq!(answers[0].as_ref().unwrap().remaining_ms, 30_000, "it lives on");
    assert!(answers[1].is_err(), "over is over");
    let tried = block_on(store.acquire(&call(), request("idle", 8, "B")));
    assert!(tried.is_err(), "what nobody renewed yet lives on too: {tried:?}");
    // For one ttl, and no longer.
    arena.pass(29_999);
    assert!(block_on(store.acquire(&call(), request("idle", 7, "B"))).is_err());
    arena.pass(1);
    assert!(block_on(store.acquire(&call(), request("idle", 6, "B"))).unwrap().grant.token > idle.token);
}

/// R21: within one ttl of the next read.
#[test]
fn a_clock_set_back_makes_nothing_immortal() {
    let arena = PostgresArena::new();
    let store = arena.store();
    block_on(store.acquire(&call(), request("k", 1, "A"))).unwrap();
    arena.shift(-HOUR_MS);
    let tried = block_on(store.acquire(&call(), request("k", 2, "B")));
    assert!(tried.is_err(), "it is held still: {tried:?}");
    arena.pass(29_999);
    assert!(block_on(store.acquire(&call(), request("k", 3, "B"))).is_err());
    arena.pass(1);
    block_on(store.acquire(&call(), request("k", 4, "B"))).unwrap();
}

/// A failover may have lost the last grants: no token comes twice.
#[test]
fn another_timeline_lifts_the_floor() {
    let arena = PostgresArena::new();
    let admin = Session::new(&arena);
    let store = arena.store();
    let first = block_on(store.acquire(&call(), request("k", 1, "A"))).unwrap().grant.token;
    // As the standby that takes over finds it: written by a server of another timeline.
    admin.value(&format!("UPDATE {}.store_state SET timeline = 4711", arena.schema));
    arena.restart();
    let store = arena.store();
    let other = block_on(store.acquire(&call(), request("l", 2, "B"))).unwrap().grant.token;
    assert!(other.get() > first.get() + 1_000_000, "{other}");
    assert!(block_on(store.acquire(&call(), request("k", 3, "B"))).is_err(), "who holds goes on holding");
}
