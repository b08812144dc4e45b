//! A store that keeps failing is left alone for a moment, and never stormed; leases are renewed all the same.

use std::time::Duration;

use fencehold::{CircuitBreakerPolicy, CircuitBreakerState, Error, LeaseState, RetryBudget};

use crate::gated_store::{GatedCall, GatedFixture, done, secs, until, within};

fn breaker(failures_in_a_row: u32, open_for: Duration) -> CircuitBreakerPolicy {
    let mut policy = CircuitBreakerPolicy::default();
    policy.failures_in_a_row = failures_in_a_row;
    policy.open_for = open_for;
    policy
}

async fn opened(fixture: &GatedFixture) {
    fixture.gate.close(GatedCall::Acquire);
    for _ in 0..3 {
        assert_eq!(fixture.fh.circuit_breaker(), CircuitBreakerState::Closed);
        assert!(matches!(within(fixture.fh.lease("x").try_acquire()).await, Err(Error::Unavailable { .. })));
    }
    assert_eq!(fixture.fh.circuit_breaker(), CircuitBreakerState::Open);
    fixture.gate.open(GatedCall::Acquire);
}

#[tokio::test]
async fn an_open_breaker_keeps_acquisitions_from_a_failing_store() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(60)))).await;
    opened(&fixture).await;
    let refused = within(fixture.fh.lease("x").try_acquire()).await.unwrap_err();
    assert!(matches!(refused, Error::Unavailable { .. }) && refused.is_retryable());
    assert_eq!(fixture.gate.calls(GatedCall::Acquire), 3, "it was not asked a fourth time");
}

#[tokio::test]
async fn a_half_open_breaker_lets_one_try_and_closes_when_that_succeeds() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(60)))).await;
    opened(&fixture).await;
    fixture.pass(60_000);
    assert_eq!(fixture.fh.circuit_breaker(), CircuitBreakerState::HalfOpen);
    let go = fixture.gate.delay_answer(GatedCall::Acquire);
    let builder = fixture.fh.lease("x");
    let trial = tokio::spawn(async move { builder.try_acquire().await });
    fixture.gate.arrived(GatedCall::Acquire, 4).await;
    let second = within(fixture.fh.lease("y").try_acquire()).await;
    assert!(matches!(second, Err(Error::Unavailable { .. })), "one at a time");
    assert_eq!(fixture.gate.calls(GatedCall::Acquire), 4);
    go.send(()).expect("the answer waits");
    let _lease = within(trial).await.expect("the trial").expect("a lease");
    assert_eq!(fixture.fh.circuit_breaker(), CircuitBreakerState::Closed);
    done(fixture.fh.lease("y").try_acquire()).await.release().await.expect("held");
}

#[tokio::test]
async fn who_waits_waits_for_the_breaker_too() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(60)))).await;
    opened(&fixture).await;
    let too_short = within(fixture.fh.lease("x").wait(secs(59)).acquire()).await;
    assert!(matches!(too_short, Err(Error::Unavailable { .. })), "{too_short:?}");
    let builder = fixture.fh.lease("x").wait(secs(600));
    let waiting = tokio::spawn(async move { builder.acquire().await });
    fixture.pass_to_next(60_000).await;
    let lease = within(waiting).await.expect("the waiter").expect("a lease");
    assert_eq!((lease.state(), fixture.gate.calls(GatedCall::Acquire)), (LeaseState::Held, 4));
}

#[tokio::test]
async fn an_open_breaker_never_holds_up_a_renewal() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(600)))).await;
    let lease = fixture.acquire("k", 10_000).await;
    let mut watch = lease.watch();
    opened(&fixture).await;
    fixture.pass(3_834);
    let deadline_ms = fixture.now_ms() + 10_000;
    until(&mut watch, |snapshot| snapshot.deadline_ms == deadline_ms).await;
    let state = fixture.fh.circuit_breaker();
    assert_eq!(state, CircuitBreakerState::Closed, "and its success is news of the store");
}

#[tokio::test]
async fn retries_stay_within_their_budget() {
    let mut policy = RetryBudget::default();
    policy.budget = 2;
    policy.budget_per_second = 0;
    let patient = breaker(1_000, secs(1));
    let fixture = GatedFixture::with(|connect| connect.retry_budget(policy).circuit_breaker(patient)).await;
    fixture.gate.close(GatedCall::Acquire);
    let builder = fixture.fh.lease("x").wait(secs(3_600));
    let asking = tokio::spawn(async move { builder.acquire().await });
    for (calls, most_ms) in [(1, 50), (2, 100), (3, 200)] {
        fixture.gate.arrived(GatedCall::Acquire, calls).await;
        fixture.pass_to_next(most_ms).await;
    }
    let error = done(asking).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }));
    assert_eq!(fixture.gate.calls(GatedCall::Acquire), 3, "one request, and two tries more");

    // The first call is no retry.
    assert!(matches!(within(fixture.fh.lease("y").try_acquire()).await, Err(Error::Unavailable { .. })));
    assert_eq!(fixture.gate.calls(GatedCall::Acquire), 4);
}
