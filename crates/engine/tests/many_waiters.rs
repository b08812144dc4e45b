//! Ten thousand in one line: all are served, in order; and the line has an end, which is named.

use std::pin::Pin;
use std::sync::Arc;

use fencehold_contract::clock::ManualClock;
use fencehold_contract::{
    AcquireLeaseRequest, AcquiredLease, CallContext, HoldRef, LeaseStore, ReleasedLease, StoreError,
};
use fencehold_core::limits::WAITERS_PER_KEY_MAX;
use fencehold_core::{HoldId, Key, Namespace, Owner};
use fencehold_engine::MemoryStore;
use fencehold_test_store::block_on;

use crate::look;

type AcquireResult<'a> = Pin<Box<dyn Future<Output = Result<AcquiredLease, StoreError>> + Send + 'a>>;

struct Waiters {
    store: MemoryStore,
    clock: ManualClock,
    call: CallContext,
    key: Key,
}

impl Waiters {
    fn new() -> Self {
        let clock = ManualClock::new();
        let store = MemoryStore::open(Arc::new(clock.clone())).unwrap();
        Waiters { store, clock, call: CallContext::new(Namespace::default()), key: Key::new("k").unwrap() }
    }

    fn request(&self, nth: usize) -> AcquireLeaseRequest {
        let mut bits = [1; 16];
        bits[..8].copy_from_slice(&nth.to_be_bytes());
        let owner = Owner::new(format!("waiter-{nth}")).unwrap();
        let request = AcquireLeaseRequest::new(self.key.clone(), HoldId::from_random(bits), owner, 30_000);
        AcquireLeaseRequest { wait_ms: 3_000_000, ..request }
    }

    /// Sends the request: looking once at the future is what sends it, and the engine takes requests in order.
    fn enter(&self, nth: usize) -> AcquireResult<'_> {
        let mut answer: AcquireResult<'_> = Box::pin(self.store.acquire(&self.call, self.request(nth)));
        let looked = look(&mut answer);
        assert!(looked.is_none(), "waiter {nth} has nothing to wait for: {looked:?}");
        answer
    }

    fn waiters(&self) -> u64 {
        block_on(self.store.get(&self.call, self.key.clone()))
            .unwrap()
            .unwrap()
            .waiter_count
    }

    fn holder(&self) -> Option<String> {
        let view = block_on(self.store.get(&self.call, self.key.clone())).unwrap().unwrap();
        view.holder.map(|holder| holder.owner.to_string())
    }

    fn release(&self, nth: usize, acquired: &AcquiredLease) {
        let hold = self.request(nth).hold_id;
        let hold = HoldRef { key: self.key.clone(), hold_id: hold, token: acquired.grant.token };
        let answers = block_on(self.store.release(&self.call, vec![hold])).unwrap();
        assert_eq!(answers, [Ok(ReleasedLease { key: self.key.clone(), token: acquired.grant.token })]);
    }
}

/// The first holder, and all that stand in line behind it.
fn fill(line: &Waiters, waiters: usize) -> (AcquiredLease, Vec<AcquireResult<'_>>) {
    let first = block_on(line.store.acquire(&line.call, line.request(0))).unwrap();
    let answers = (1..=waiters).map(|nth| line.enter(nth)).collect();
    assert_eq!(line.waiters(), waiters as u64);
    (first, answers)
}

#[test]
fn ten_thousand_in_one_line_are_all_served_in_order() {
    let line = Waiters::new();
    let (mut held, answers) = fill(&line, 10_000);
    for (nth, answer) in answers.into_iter().enumerate().map(|(nth, answer)| (nth + 1, answer)) {
        line.clock.advance_ms(1);
        line.release(nth - 1, &held);
        assert_eq!(line.holder(), Some(format!("waiter-{nth}")));
        let next = block_on(answer).unwrap_or_else(|error| panic!("waiter {nth}: {error}"));
        assert!(next.grant.token > held.grant.token);
        assert_eq!(next.waited_ms, nth as u64);
        held = next;
    }
    assert_eq!(line.waiters(), 0);
}

#[test]
fn ten_thousand_whose_time_is_up_all_learn_it_and_none_is_granted() {
    let line = Waiters::new();
    let (_, answers) = fill(&line, 10_000);
    line.clock.advance_ms(3_000_000);
    for answer in answers {
        assert!(block_on(answer).is_err());
    }
    assert_eq!((line.holder(), line.waiters()), (None, 0));
}

#[test]
fn a_line_has_an_end_and_the_refusal_names_it() {
    let line = Waiters::new();
    let (_, mut answers) = fill(&line, WAITERS_PER_KEY_MAX);
    let request = line.request(WAITERS_PER_KEY_MAX + 1);
    let mut one_too_many: AcquireResult<'_> = Box::pin(line.store.acquire(&line.call, request));
    let refused = look(&mut one_too_many).or_else(|| {
        // The engine answers in order: once a later question has its answer, so has this one.
        line.waiters();
        line.waiters();
        look(&mut one_too_many)
    });
    match refused.expect("an answer at once") {
        Err(StoreError::LimitReached { message: what, limit }) => {
            assert_eq!(limit, 16_384);
            assert!(what.contains('k') && what.contains("in line"), "{what}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(line.waiters(), WAITERS_PER_KEY_MAX as u64, "no waiter lost its place");
    // One that leaves makes room for one.
    drop(answers.pop());
    let _in_line = line.enter(WAITERS_PER_KEY_MAX + 1);
    assert_eq!(line.waiters(), WAITERS_PER_KEY_MAX as u64);
}
