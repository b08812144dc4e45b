//! A store that keeps failing, or is slow, is left alone for a moment, and never stormed; leases are renewed all the same.

use std::time::Duration;

use fencehold::job::JobState;
use fencehold::{
    CircuitBreakerPolicy, CircuitBreakerState, Error, Lease, LeaseState, RetryBudget, WorkerEvent,
};

use crate::gated_store::{GatedCall, GatedFixture, done, next, secs, until, with, within};

fn breaker(failures_in_a_row: u32, open_for: Duration) -> CircuitBreakerPolicy {
    let mut policy = CircuitBreakerPolicy::default();
    policy.failures_in_a_row = failures_in_a_row;
    policy.open_for = open_for;
    // The tests know to the millisecond when it may be tried.
    policy.open_jitter_percent = 0;
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
    assert!(fixture.gate.acquires()[3].is_first_sending(), "the minute was not spent in line");
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

/// A response that takes this long is slow: half of the handle's timeout.
const SLOW_MS: u64 = 5_000;

/// An acquisition whose response takes this long. It is granted.
async fn takes(fixture: &GatedFixture, key: &str, ms: u64) -> Lease {
    let calls = fixture.gate.calls(GatedCall::Acquire);
    let go = fixture.gate.delay_answer(GatedCall::Acquire);
    let builder = fixture.fh.lease(key).ttl(secs(600));
    let asking = tokio::spawn(async move { builder.try_acquire().await });
    fixture.gate.arrived(GatedCall::Acquire, calls + 1).await;
    fixture.pass(ms);
    go.send(()).expect("the answer waits");
    done(async { asking.await.expect("the caller") }).await
}

#[tokio::test]
async fn a_slow_store_opens_the_breaker_and_what_is_held_is_renewed() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(60)))).await;
    let mut held = Vec::new();
    for nth in 0..3 {
        assert_eq!(fixture.fh.circuit_breaker(), CircuitBreakerState::Closed, "{nth} were slow");
        held.push(takes(&fixture, &format!("slow/{nth}"), SLOW_MS).await);
    }
    let stats = fixture.fh.circuit_breaker_stats();
    assert_eq!((stats.state, stats.slow_count, stats.failed_count), (CircuitBreakerState::Open, 3, 0));
    let refused = within(fixture.fh.lease("x").try_acquire()).await.unwrap_err();
    assert!(refused.to_string().contains("left alone for another 60.0 s"), "{refused}");
    assert_eq!(fixture.fh.circuit_breaker_stats().refused_count, 1);

    // Releases pass, and a quick response is good news.
    done(held.remove(0).release()).await;
    assert_eq!(fixture.fh.circuit_breaker(), CircuitBreakerState::Closed);
}

#[tokio::test]
async fn a_response_in_time_is_not_slow() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(1, secs(60)))).await;
    let _lease = takes(&fixture, "k", SLOW_MS - 1).await;
    let stats = fixture.fh.circuit_breaker_stats();
    assert_eq!((stats.state, stats.slow_count), (CircuitBreakerState::Closed, 0));
}

#[tokio::test]
async fn time_in_line_is_never_slow() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(1, secs(60)))).await;
    let holder = fixture.acquire("k", 600_000).await;
    let builder = fixture.fh.lease("k").wait(secs(50));
    let waiting = tokio::spawn(async move { builder.acquire().await });
    fixture.gate.arrived(GatedCall::Acquire, 2).await;
    fixture.until("k", |view| view.waiter_count == 1).await;
    fixture.pass(40_000);
    done(holder.release()).await;
    let _lease = done(async { waiting.await.expect("the waiter") }).await;

    // A worker's claim waits for a job, and a caller for its result.
    let worker = fixture
        .worker()
        .handle("do", async |_: fencehold::Job, (): ()| {})
        .start()
        .expect("a worker");
    fixture.gate.arrived(GatedCall::Claim, 1).await;
    fixture.pass(50_000);
    let id = fixture.enqueue("do").await;
    done(fixture.fh.jobs().wait(id, secs(50))).await;
    done(worker.drain()).await;
    let stats = fixture.fh.circuit_breaker_stats();
    assert_eq!((stats.state, stats.slow_count), (CircuitBreakerState::Closed, 0));
}

#[tokio::test]
async fn each_opening_in_a_row_is_longer_and_says_when_to_try_again() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(1)))).await;
    opened(&fixture).await;
    fixture.gate.close(GatedCall::Acquire);
    for (opening, open_s) in [(1, 1), (2, 2), (3, 4), (4, 8), (5, 10), (6, 10)] {
        let stats = fixture.fh.circuit_breaker_stats();
        assert_eq!((stats.opened_in_a_row, stats.retry_in), (opening, Some(secs(open_s))));
        let refused = within(fixture.fh.lease("x").try_acquire()).await.unwrap_err();
        assert!(refused.to_string().contains(&format!("another {open_s}.0 s")), "{refused}");
        fixture.pass(open_s * 1_000);
        let probe = within(fixture.fh.lease("x").try_acquire()).await.unwrap_err();
        assert!(probe.to_string().contains("the gate is closed"), "{probe}");
    }
    assert_eq!(fixture.fh.circuit_breaker_stats().refused_count, 6);
}

#[tokio::test]
async fn only_so_many_calls_try_while_it_is_half_open_and_the_others_are_refused_at_once() {
    let mut policy = breaker(3, secs(60));
    policy.max_half_open_calls = 2;
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(policy)).await;
    opened(&fixture).await;
    fixture.pass(60_000);
    let answers = [(); 2].map(|()| fixture.gate.delay_answer(GatedCall::Acquire));
    let (told, mut outcomes) = tokio::sync::mpsc::unbounded_channel();
    for nth in 0..16 {
        let (builder, told) = (fixture.fh.lease(format!("k/{nth}")), told.clone());
        tokio::spawn(async move { told.send(builder.try_acquire().await).expect("the test") });
    }
    fixture.gate.arrived(GatedCall::Acquire, 3 + 2).await;
    // Those that may not try have their answer before any probe has.
    for _ in 0..14 {
        let refused = next(&mut outcomes).await.expect_err("two try already").to_string();
        assert!(refused.contains("left alone for another 60.0 s"), "{refused}");
    }
    assert_eq!(fixture.gate.calls(GatedCall::Acquire), 3 + 2, "the store was asked no more");
    drop(answers);
    let leases = [next(&mut outcomes).await, next(&mut outcomes).await].map(|lease| lease.expect("a lease"));
    assert_eq!(fixture.fh.circuit_breaker(), CircuitBreakerState::Closed);
    drop(leases);
}

/// Waits until so many calls have to wait for the breaker.
async fn until_delayed(fixture: &GatedFixture, calls: u64) {
    within(async {
        while fixture.fh.circuit_breaker_stats().delayed_count < calls {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn who_waits_goes_as_soon_as_the_breaker_closes() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(60)))).await;
    let held = fixture.acquire("held", 600_000).await;
    opened(&fixture).await;
    let builder = fixture.fh.lease("x").wait(secs(600));
    let waiting = tokio::spawn(async move { builder.acquire().await });
    until_delayed(&fixture, 1).await;
    done(held.release()).await;
    // No time passes.
    let _lease = done(async { waiting.await.expect("the waiter") }).await;
}

#[tokio::test]
async fn who_tries_for_the_others_does_not_wait_in_line_first() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(60)))).await;
    let held = fixture.acquire("k", 600_000).await;
    fixture.gate.close(GatedCall::Acquire);
    for _ in 0..3 {
        within(fixture.fh.lease("k").try_acquire()).await.unwrap_err();
    }
    fixture.gate.open(GatedCall::Acquire);
    fixture.pass(60_000);
    let builder = fixture.fh.lease("k").wait(secs(60));
    let waiting = tokio::spawn(async move { builder.acquire().await });
    fixture.until("k", |view| view.waiter_count == 1).await;
    assert_eq!(fixture.fh.circuit_breaker(), CircuitBreakerState::Closed, "the key is held: the store works");
    let waits: Vec<u64> = fixture.gate.acquires()[4..].iter().map(|request| request.wait_ms).collect();
    assert_eq!(waits, [0, 60_000]);
    done(held.release()).await;
    let _lease = done(async { waiting.await.expect("the waiter") }).await;
}

#[tokio::test]
async fn what_a_job_records_under_its_claim_is_not_held_back() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(3, secs(600)))).await;
    let (begun, mut beginnings) = tokio::sync::mpsc::unbounded_channel();
    let (go, gone) = tokio::sync::watch::channel(false);
    let handler =
        with(begun, move |begun: tokio::sync::mpsc::UnboundedSender<()>, job: fencehold::Job, ()| {
            let mut gone = gone.clone();
            async move {
                begun.send(())?;
                gone.wait_for(|gone| *gone).await?;
                job.once("smtp", async |_| Ok(())).await?;
                Ok(())
            }
        });
    let worker = fixture.worker().handle("do", handler).start().expect("a worker");
    let id = fixture.enqueue("do").await;
    next(&mut beginnings).await;
    opened(&fixture).await;
    go.send(true).expect("the handler");
    fixture.until_job(id, |detail| detail.job.state == JobState::Completed).await;
    done(worker.drain()).await;
}

#[tokio::test]
async fn a_worker_says_how_its_breaker_stands() {
    let fixture = GatedFixture::with(|connect| connect.circuit_breaker(breaker(2, secs(60)))).await;
    fixture.gate.close(GatedCall::Claim);
    let (told, mut changes) = tokio::sync::mpsc::unbounded_channel();
    let worker = fixture
        .worker()
        .handle("do", async |_: fencehold::Job, (): ()| {})
        .on_event(move |event| {
            if let WorkerEvent::CircuitBreakerChanged(stats) = event {
                told.send(**stats).expect("the test");
            }
        });
    let worker = worker.start().expect("a worker");
    fixture.gate.arrived(GatedCall::Claim, 1).await;
    fixture.pass_to_next(50).await;
    let open = next(&mut changes).await;
    assert_eq!((open.state, open.failed_count, open.opened_count), (CircuitBreakerState::Open, 2, 1));
    assert_eq!(open.retry_in, Some(secs(60)));
    fixture.gate.open(GatedCall::Claim);
    // The pause after the second failure, and then the breaker.
    fixture.pass(100);
    until_delayed(&fixture, 1).await;
    let go = fixture.gate.delay_answer(GatedCall::Claim);
    fixture.pass(60_000);
    assert_eq!(next(&mut changes).await.state, CircuitBreakerState::HalfOpen);
    go.send(()).expect("the answer waits");
    assert_eq!(next(&mut changes).await.state, CircuitBreakerState::Closed);
    let id = fixture.enqueue("do").await;
    fixture.until_job(id, |detail| detail.job.state == JobState::Completed).await;
    done(worker.drain()).await;
}
