//! An owner that does not run for a while, as under SIGSTOP, held where the worst could happen: after it has decided and
//! before it answers (R22, R38).

use std::pin::Pin;
use std::task::{Context, Waker};

use fencehold_contract::{LeaseStore, StoreError};
use fencehold_core::Refusal;
use fencehold_core::lease::LeaseOutcome;
use fencehold_store_file::FileStore;
use fencehold_test_servers::calls::OneByOne as _;

use crate::support::{Fixture, TTL_MS, block_on, call, hold, renew, request, take, view};

/// What an owner passes between deciding a batch that changes nothing and answering it.
const ANSWER: &str = "confirm.closed";

/// Holds the owner there, in the middle of looking at `name`, until the gate is lifted.
fn hold_while_it_looks_at<'scope>(
    fixture: &Fixture,
    scope: &'scope std::thread::Scope<'scope, '_>,
    owner: &'scope FileStore,
    name: &'static str,
) -> std::thread::ScopedJoinHandle<'scope, fencehold_contract::LeaseView> {
    fixture.set_gate(ANSWER);
    let looking = scope.spawn(move || view(owner, name));
    fixture.await_gate("confirm");
    looking
}

/// A request that has left: an owner that serves here has it before this returns.
fn sent<T>(
    mut asking: Pin<Box<dyn Future<Output = T> + Send + '_>>,
) -> Pin<Box<dyn Future<Output = T> + Send + '_>> {
    let polled = asking.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(polled.is_pending(), "answered by an owner that does not run");
    asking
}

/// R22: no other process is there to take over. What came in meanwhile is judged by the time at which it is decided: those
/// who outlived their ttl learn so, those who did not lose nothing, and the key goes on under a larger token.
#[test]
fn an_owner_that_wakes_judges_by_the_time_it_is_and_not_by_the_time_it_slept_in() {
    let (fixture, store) = Fixture::opened();
    let short = take(&store, "short", 1);
    let mut lasting = request("lasting", 2);
    lasting.ttl_ms = 3 * TTL_MS;
    let lasting = block_on(store.acquire(&call(), lasting)).unwrap().grant.token;
    std::thread::scope(|scope| {
        let looking = hold_while_it_looks_at(&fixture, scope, &store, "short");
        fixture.clock.advance_ms(TTL_MS);
        let call = call();
        let renewals = sent(store.renew(&call, vec![hold("short", 1, short), hold("lasting", 2, lasting)]));
        let contender = sent(store.acquire(&call, request("lasting", 3)));
        fixture.clock.advance_ms(TTL_MS);
        fixture.lift_gate(ANSWER);
        looking.join().unwrap();
        let renewed = block_on(renewals).unwrap();
        match &renewed.results[0] {
            Err(Refusal::Lost { token, outcome: Some(LeaseOutcome::Expired), .. }) => {
                assert_eq!(*token, short);
            }
            other => panic!("not told: {other:?}"),
        }
        assert_eq!(renewed.results[1].as_ref().unwrap().remaining_ms, 3 * TTL_MS, "its time was not over");
        let refused = block_on(contender);
        let held = matches!(refused, Err(StoreError::Refused { refusal: Refusal::Held { .. }, .. }));
        assert!(held, "granted although it lives: {refused:?}");
    });
    assert!(take(&store, "short", 4) > short);
    let view = view(&store, "lasting");
    assert_eq!((view.endings.len(), view.token), (0, lasting));
}

/// R22, R38: another process takes over, grants what has run out meanwhile, and only then does the old owner wake. The
/// answer that it had ready, with the holder of before, never goes out.
#[test]
fn an_owner_that_was_stopped_before_its_answer_never_gives_it() {
    let (fixture, old) = Fixture::opened();
    let first = take(&old, "k", 1);
    let other = fixture.open();
    std::thread::scope(|scope| {
        let looking = hold_while_it_looks_at(&fixture, scope, &old, "k");
        fixture.clock.advance_ms(TTL_MS);
        // Asked of the silent owner first; two seconds later of the next owner.
        let second = take(&other, "k", 2);
        assert!(second > first);
        fixture.lift_gate(ANSWER);
        let seen = looking.join().unwrap();
        assert_eq!((seen.token, seen.holder.unwrap().owner.as_str()), (second, "owner-2"));
        match old.renew_one(&hold("k", 1, first)) {
            Err(Refusal::Lost { token, outcome, current_token, .. }) => {
                let expired = Some(LeaseOutcome::Expired);
                assert_eq!((token, outcome, current_token), (first, expired, second));
            }
            answer => panic!("not told: {answer:?}"),
        }
        assert_eq!(renew(&old, "k", 2, second), TTL_MS, "asked of its successor");
        assert_eq!(block_on(old.status(&call())).unwrap().epoch, Some(2));
    });
}
