//! Clocks: machines agree on nothing but how fast time passes, and not even quite on that.

use std::sync::Arc;

use fencehold_contract::clock::{Clock as _, ManualClock, SystemClock};
use fencehold_contract::{AcquireLeaseRequest, AcquiredLease, LeaseStore as _, ObjectUrl, StoreError};
use fencehold_store_object::{Cloud, ObjectStore, over_after_ms};
use fencehold_test_servers::calls::{OneByOne as _, call};
use fencehold_test_store::block_on;

use crate::fixture::open_on;
use crate::servers::{CLOUDS, ObjectServer};
use crate::{TTL_MS, ask};

/// One machine: a handle and clocks of its own.
struct ClockedMachine {
    store: ObjectStore,
    clock: ManualClock,
}

impl ClockedMachine {
    /// Booted this long ago, with its wall clock off by this much.
    fn new(place: &ObjectUrl, booted_ms: u64, wall_off_ms: i64) -> Self {
        let clock = ManualClock::new();
        clock.advance_ms(booted_ms);
        clock.set_wall(1_800_000_000_000_u64.saturating_add_signed(wall_off_ms));
        let store = open_on(Cloud::open(place).unwrap(), place, Arc::new(clock.clone()));
        ClockedMachine { store, clock }
    }

    fn acquire(&self, request: AcquireLeaseRequest) -> Result<AcquiredLease, StoreError> {
        block_on(self.store.acquire(&call(), request))
    }
}

const HOUR_MS: i64 = 3_600_000;

/// R20, R21: whatever a machine's wall clock says and whenever it was booted, it takes over at the same age, to the
/// millisecond.
#[test]
fn machines_whose_clocks_agree_in_nothing_take_over_at_the_same_age() {
    for server in CLOUDS {
        for (booted_ms, wall_off_ms) in [(0, 0), (5_000_000_000, HOUR_MS), (17, -HOUR_MS)] {
            let place = server.place();
            let holder = ClockedMachine::new(&place, 123_456_789, 0);
            let contender = ClockedMachine::new(&place, booted_ms, wall_off_ms);
            let context = format!("{server:?}, booted {booted_ms} ms ago, off by {wall_off_ms} ms");
            let first = holder.acquire(ask("k", "A")).unwrap();
            assert!(contender.acquire(ask("k", "B")).is_err(), "{context}");
            let pass = |ms| [&holder, &contender].map(|machine| machine.clock.advance_ms(ms));
            pass(over_after_ms(TTL_MS) - 1);
            assert!(contender.acquire(ask("k", "B")).is_err(), "{context}: a moment too early");
            // A jump of the wall clock in the middle changes nothing either.
            contender
                .clock
                .set_wall(contender.clock.now().wall_ms.saturating_add_signed(-3 * wall_off_ms));
            pass(1);
            let next = contender
                .acquire(ask("k", "B"))
                .unwrap_or_else(|error| panic!("{context}: {error}"));
            assert!(next.grant.token > first.grant.token, "{context}");
        }
    }
}

/// The holder's clock is slewed to be 8 % slow and the contender's to be 8 % fast: a holder that renews as late as it
/// believes it may is never overtaken.
#[test]
fn a_slow_holder_and_a_fast_contender_never_hold_together() {
    let place = ObjectServer::Gcs.place();
    let (holder, contender) = (ClockedMachine::new(&place, 0, 0), ClockedMachine::new(&place, 0, 0));
    let own = holder.store.take(ask("k", "A"));
    for round in 0..5 {
        assert!(contender.acquire(ask("k", "B")).is_err(), "round {round}");
        // Right up to what the holder takes for its deadline.
        holder.clock.advance_ms(TTL_MS - 1);
        contender.clock.advance_ms((TTL_MS - 1) * 108 / 92);
        assert!(contender.acquire(ask("k", "B")).is_err(), "round {round}: it believes in its lease");
        assert!(holder.store.renew_one(&own).is_ok(), "round {round}");
    }
}

/// Google Cloud Storage takes about one write a second of one object: a second write waits until then.
#[test]
fn an_object_that_was_just_written_is_left_alone_for_a_second() {
    let mut place = ObjectServer::Gcs.place();
    place.options.min_write_interval_ms = 1_000;
    let store = open_on(Cloud::open(&place).unwrap(), &place, Arc::new(SystemClock));
    let before_ms = SystemClock.now().store_ms;
    let own = store.take(ask("k", "A"));
    for _ in 0..2 {
        store.renew_one(&own).unwrap();
    }
    let took_ms = SystemClock.now().store_ms - before_ms;
    assert!(took_ms >= 2_000, "three writes within {took_ms} ms");
}
