//! Acquiring a lease: fairly, with a wait, and never leaving one behind that no holder knows of.

use std::time::Duration;

use fencehold::store::{LeaseStore, StoreError};
use fencehold::{Error, Fencehold, Lease, LeaseOutcome, LeaseState, Token, limits};
use fencehold_core::Refusal;
use tokio::task::JoinHandle;

use crate::gated_store::{CallFate, GatedCall, GatedFixture, done, secs, within};

fn spawn(fixture: &GatedFixture, key: &str, wait: Option<Duration>) -> JoinHandle<Result<Lease, Error>> {
    let builder = fixture.fh.lease(key).ttl(secs(10));
    let builder = wait.into_iter().fold(builder, fencehold::LeaseBuilder::wait);
    tokio::spawn(async move { builder.acquire().await })
}

/// The store refuses a call about the key `k`.
fn refuse(refusal: Refusal) -> CallFate {
    CallFate::Refuse(StoreError::Refused { key: fencehold::Key::new("k").unwrap(), refusal })
}

/// Waits until so many stand in line.
async fn in_line(fixture: &GatedFixture, key: &str, waiters: u64) {
    fixture.until(key, |view| view.waiter_count == waiters).await;
}

#[tokio::test]
async fn a_lost_answer_is_asked_for_again_and_gets_the_same_lease_with_the_time_that_remains() {
    let fixture = GatedFixture::new().await;
    let began_ms = fixture.now_ms();
    fixture.gate.next(GatedCall::Acquire, CallFate::LoseAnswer);
    let asking = spawn(&fixture, "k", None);
    fixture.gate.arrived(GatedCall::Acquire, 1).await;
    fixture.pass_to_next(50).await;
    let lease = within(asking).await.expect("the asker").expect("the lease");
    let asked = fixture.gate.acquires();
    assert_eq!(asked.len(), 2);
    assert_eq!(asked[0].hold_id, asked[1].hold_id, "one acquisition, one hold id");
    assert_eq!((asked[0].hold_id_age_ms, asked[1].hold_id_age_ms), (0, fixture.now_ms() - began_ms));
    assert!(fixture.now_ms() > began_ms);
    assert_eq!(lease.token(), Token::new(1));
    assert_eq!(lease.deadline_ms(), began_ms + 10_000, "not a full ttl from the second answer");
    assert_eq!(fixture.view("k").await.token, Token::new(1), "and no second grant");
}

#[tokio::test]
async fn a_request_that_arrives_twice_gets_one_lease() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Acquire, CallFate::Twice);
    let lease = fixture.acquire("k", 10_000).await;
    assert_eq!((lease.token(), fixture.view("k").await.token), (Token::new(1), Token::new(1)));
    lease.release().await.expect("it is ours");
}

#[tokio::test]
async fn even_who_does_not_wait_asks_again_after_an_unknown_outcome() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Acquire, CallFate::LoseAnswer);
    let builder = fixture.fh.lease("k");
    let asking = tokio::spawn(async move { builder.try_acquire().await });
    fixture.gate.arrived(GatedCall::Acquire, 1).await;
    fixture.pass_to_next(50).await;
    let lease = within(asking).await.expect("the asker").expect("the lease");
    assert_eq!(lease.token(), Token::new(1));
}

#[tokio::test]
async fn who_leaves_while_the_outcome_is_open_leaves_no_lease_behind() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Acquire, CallFate::LoseAnswer);
    let asking = spawn(&fixture, "k", None);
    fixture.gate.arrived(GatedCall::Acquire, 1).await;
    fixture.until("k", |view| view.holder.is_some()).await;
    fixture.sleeps(50).await;
    asking.abort();
    assert!(within(asking).await.is_err_and(|error| error.is_cancelled()));
    let view = fixture.until("k", |view| view.holder.is_none()).await;
    let outcomes: Vec<_> = view.endings.iter().map(|ending| ending.outcome).collect();
    assert_eq!(outcomes, [LeaseOutcome::Released]);
    let asked = fixture.gate.acquires();
    assert_eq!((asked[1].hold_id, asked[1].wait_ms), (asked[0].hold_id, 0), "learnt by the same hold id");
    // Which is not told as new, though no time passed.
    assert_eq!((asked[0].hold_id_age_ms, asked[1].hold_id_age_ms), (0, 1));
}

#[tokio::test]
async fn who_gives_up_with_the_outcome_open_leaves_no_lease_behind() {
    let fixture = GatedFixture::with(|connect| connect.timeout(Duration::from_millis(1))).await;
    fixture.gate.next(GatedCall::Acquire, CallFate::LoseAnswer);
    let error = within(fixture.fh.lease("k").try_acquire()).await.unwrap_err();
    assert!(matches!(error, Error::OutcomeUnknown { .. }) && error.is_retryable());
    fixture.until("k", |view| view.holder.is_none()).await;
}

#[tokio::test]
async fn who_stops_waiting_leaves_the_line() {
    let fixture = GatedFixture::new().await;
    let holder = fixture.acquire("k", 10_000).await;
    let asking = spawn(&fixture, "k", None);
    in_line(&fixture, "k", 1).await;
    asking.abort();
    in_line(&fixture, "k", 0).await;
    holder.release().await.expect("held");
    assert!(fixture.view("k").await.holder.is_none());
}

#[tokio::test]
async fn a_waiter_whose_time_is_up_is_told_who_holds_the_key() {
    let fixture = GatedFixture::new().await;
    let holder = done(fixture.fh.lease("k").task("run-42").owner("alice").acquire()).await;
    let asking = spawn(&fixture, "k", Some(secs(5)));
    in_line(&fixture, "k", 1).await;
    fixture.pass(5_000);
    let error = done(asking).await.unwrap_err();
    let text = error.to_string();
    let Error::Held { key, owner, task, remaining, token, .. } = error else { panic!("{error}") };
    assert_eq!((key.as_str(), owner.as_str()), ("k", "alice"));
    assert_eq!(task.map(|task| task.to_string()), Some("run-42".to_owned()));
    assert_eq!((remaining, token), (secs(25), holder.token()));
    assert!(text.starts_with("k is held by alice for run-42 under token 1, for another 25.0 s"), "{text}");
}

#[tokio::test]
async fn a_grant_that_arrives_when_the_time_is_up_is_given_back_and_not_told() {
    let fixture = GatedFixture::new().await;
    let go = fixture.gate.delay_answer(GatedCall::Acquire);
    let asking = spawn(&fixture, "k", Some(secs(5)));
    fixture.until_known("k").await;
    fixture.pass(5_001);
    go.send(()).expect("the answer waits");
    let error = done(asking).await.unwrap_err();
    let Error::WaitTimedOut { waited, .. } = error else { panic!("{error}") };
    assert_eq!(waited, Duration::from_millis(5_001));
    fixture.until("k", |view| view.holder.is_none()).await;
    assert_eq!(fixture.view("k").await.endings[0].outcome, LeaseOutcome::Released);
}

#[tokio::test]
async fn a_grant_that_arrives_on_time_is_told() {
    let fixture = GatedFixture::new().await;
    // It is due for its first renewal when it arrives; this test looks at the grant alone.
    fixture.gate.close(GatedCall::Renew);
    let go = fixture.gate.delay_answer(GatedCall::Acquire);
    let asking = spawn(&fixture, "k", Some(secs(5)));
    fixture.until_known("k").await;
    let began_ms = fixture.now_ms();
    fixture.pass(5_000);
    go.send(()).expect("the answer waits");
    let lease = within(asking).await.expect("the waiter").expect("its lease");
    assert_eq!(lease.deadline_ms(), began_ms + 10_000, "counted from before the request left");
}

#[tokio::test]
async fn a_grant_whose_answer_took_most_of_its_time_is_never_handed_out() {
    let fixture = GatedFixture::new().await;
    let go = fixture.gate.delay_answer(GatedCall::Acquire);
    let builder = fixture.fh.lease("k").ttl(secs(1));
    let asking = tokio::spawn(async move { builder.try_acquire().await });
    fixture.until_known("k").await;
    fixture.pass(900);
    go.send(()).expect("the answer waits");
    let error = done(asking).await.unwrap_err();
    let Error::Unavailable { message, .. } = error else { panic!("{error}") };
    assert!(message.contains("most of its time"), "{message}");
    fixture.until("k", |view| view.holder.is_none()).await;
}

#[tokio::test]
async fn the_time_in_line_is_no_part_of_the_term() {
    let fixture = GatedFixture::new().await;
    let holder = fixture.acquire("k", 60_000).await;
    let asking = spawn(&fixture, "k", None);
    in_line(&fixture, "k", 1).await;
    fixture.pass(7_000);
    holder.release().await.expect("held");
    let lease = within(asking).await.expect("the waiter").expect("its turn");
    let now_ms = fixture.now_ms();
    assert_eq!((lease.deadline_ms(), lease.lost_at_ms()), (now_ms + 10_000, now_ms + 9_000));
}

#[tokio::test]
async fn waiters_are_served_in_order_and_nobody_who_just_came_passes_them() {
    let fixture = GatedFixture::new().await;
    let holder = fixture.acquire("k", 60_000).await;
    let first = spawn(&fixture, "k", None);
    in_line(&fixture, "k", 1).await;
    let second = spawn(&fixture, "k", None);
    in_line(&fixture, "k", 2).await;
    assert!(matches!(within(fixture.fh.lease("k").try_acquire()).await, Err(Error::Held { .. })));
    holder.release().await.expect("held");
    let first = within(first).await.expect("the first").expect("its turn");
    assert!(matches!(within(fixture.fh.lease("k").try_acquire()).await, Err(Error::Held { .. })));
    assert!(!second.is_finished());
    first.release().await.expect("held");
    let second = within(second).await.expect("the second").expect("its turn");
    assert_eq!(second.token(), Token::new(3));
}

#[tokio::test]
async fn a_wait_may_be_longer_than_a_store_lets_anybody_stand_in_line() {
    let fixture = GatedFixture::new().await;
    let holder = fixture.acquire("k", limits::TTL_MS_MAX).await;
    let asking = spawn(&fixture, "k", None);
    in_line(&fixture, "k", 1).await;
    fixture.pass(limits::WAIT_MS_MAX);
    fixture.gate.arrived(GatedCall::Acquire, 3).await;
    in_line(&fixture, "k", 1).await;
    let asked = fixture.gate.acquires();
    assert_ne!(asked[1].hold_id, asked[2].hold_id, "the first got 'held': that hold id is done");
    assert_eq!((asked[2].hold_id_age_ms, asked[2].wait_ms), (0, limits::WAIT_MS_MAX));
    assert_eq!(asked[2].waited_before_ms, limits::WAIT_MS_MAX, "and it keeps its place");
    holder.release().await.expect("held");
    let lease = within(asking).await.expect("the waiter").expect("its turn");
    assert_eq!(lease.state(), LeaseState::Held);
}

#[tokio::test]
async fn a_store_that_cannot_be_reached_is_asked_again_by_the_same_hold_id() {
    let fixture = GatedFixture::new().await;
    let away = StoreError::Unavailable { message: "away".to_owned() };
    let full = StoreError::LimitReached { message: "too many".to_owned(), limit: 1 };
    for refused in [away, full] {
        fixture.gate.next(GatedCall::Acquire, CallFate::Refuse(refused));
    }
    let asking = spawn(&fixture, "k", Some(secs(60)));
    fixture.gate.arrived(GatedCall::Acquire, 1).await;
    fixture.pass_to_next(50).await;
    fixture.gate.arrived(GatedCall::Acquire, 2).await;
    fixture.pass_to_next(100).await;
    let lease = within(asking).await.expect("the asker").expect("the lease");
    assert_eq!(lease.token(), Token::new(1));
    let asked = fixture.gate.acquires();
    assert!(asked.iter().all(|request| request.hold_id == asked[0].hold_id));
    assert!(asked[2].waited_before_ms > asked[1].waited_before_ms && asked[1].waited_before_ms > 0);
    assert_eq!(asked[2].hold_id_age_ms, asked[2].waited_before_ms, "its age counts from the first sending");
}

#[tokio::test]
async fn without_a_limit_a_dead_store_is_borne_with_for_as_long_as_patience_lasts() {
    let fixture = GatedFixture::with(|connect| connect.timeout(Duration::from_millis(1))).await;
    fixture.gate.close(GatedCall::Acquire);
    let error = within(fixture.fh.lease("k").acquire()).await.unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { message, .. } if message == "the gate is closed"),
        "{error}"
    );
    assert!(matches!(within(fixture.fh.lease("k").try_acquire()).await, Err(Error::Unavailable { .. })));
}

#[tokio::test]
async fn a_store_that_never_answers_is_given_up_after_its_patience() {
    let fixture = GatedFixture::with(|connect| connect.timeout(secs(3))).await;
    fixture.gate.next(GatedCall::Acquire, CallFate::Hang);
    let asking = spawn(&fixture, "k", None);
    fixture.gate.arrived(GatedCall::Acquire, 1).await;
    // It may stand in line for an hour; three seconds and one of grace later the answer counts as lost.
    fixture.pass_to_next(limits::WAIT_MS_MAX + 4_000).await;
    fixture.pass_to_next(50).await;
    let lease = within(asking).await.expect("the asker").expect("the lease");
    assert_eq!(lease.token(), Token::new(1));
}

#[tokio::test]
async fn a_hold_id_that_ended_unseen_is_replaced() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Acquire, CallFate::LoseAnswer);
    let asking = spawn(&fixture, "k", Some(secs(60)));
    fixture.gate.arrived(GatedCall::Acquire, 1).await;
    fixture.until("k", |view| view.holder.is_some()).await;
    fixture.revoke("k").await;
    fixture.pass_to_next(50).await;
    let lease = within(asking).await.expect("the asker").expect("the lease");
    let asked = fixture.gate.acquires();
    assert_eq!(asked[0].hold_id, asked[1].hold_id);
    assert_ne!(asked[1].hold_id, asked[2].hold_id);
    assert_eq!(lease.token(), Token::new(3), "after the revoked one and the token that force consumed");
}

#[tokio::test]
async fn a_token_from_the_future_proves_that_the_store_was_rewound() {
    let fixture = GatedFixture::new().await;
    let ahead = fixture.fh.lease("k").seen_token(Token::new(7));
    let error = within(ahead.acquire()).await.unwrap_err();
    assert!(matches!(error, Error::StoreRewound { token, .. } if token == Token::new(7)));
    assert!(error.to_string().contains("have the store advanced") && !error.is_retryable());
}

#[tokio::test]
async fn any_of_n_keys_is_a_semaphore_of_n() {
    let fixture = GatedFixture::new().await;
    let slots = ["gpu/0", "gpu/1", "gpu/2"];
    let mut held = Vec::new();
    for _ in slots {
        held.push(done(fixture.fh.lease_any_of(slots).acquire()).await);
    }
    let mut keys: Vec<_> = held.iter().map(|lease| lease.key().to_string()).collect();
    keys.sort();
    assert_eq!(keys, slots);
    assert!(matches!(within(fixture.fh.lease_any_of(slots).try_acquire()).await, Err(Error::Held { .. })));
    let builder = fixture.fh.lease_any_of(slots);
    let waiting = tokio::spawn(async move { builder.acquire().await });
    in_line(&fixture, "gpu/1", 1).await;
    let freed = held.remove(1);
    let key = freed.key().clone();
    freed.release().await.expect("held");
    let lease = within(waiting).await.expect("the waiter").expect("the free slot");
    assert_eq!(*lease.key(), key);
}

#[tokio::test]
async fn bad_input_is_told_by_the_call_that_finishes_and_never_sent() {
    let fixture = GatedFixture::new().await;
    let fh = &fixture.fh;
    let said = |result: Result<Lease, Error>| match result.unwrap_err() {
        Error::BadInput(bad) => bad.to_string(),
        other => panic!("{other}"),
    };
    assert_eq!(said(fh.lease("").acquire().await), "key must not be empty");
    assert_eq!(said(fh.lease("a\nb").try_acquire().await), "key has a control character at byte 1");
    assert_eq!(said(fh.lease("k").owner("").acquire().await), "owner must not be empty");
    let long = fh.lease("k").task("t".repeat(257));
    assert_eq!(said(long.acquire().await), "task has 257 bytes; the limit is 256");
    assert!(said(fh.lease("k").ttl(Duration::ZERO).acquire().await).starts_with("ttl is 0 ms"));
    assert!(said(fh.lease("k").ttl(secs(86_401)).acquire().await).contains("the limit is 86400000 ms"));
    assert!(said(fh.lease("k").max_age(Duration::ZERO).acquire().await).starts_with("max_age is 0 ms"));
    assert_eq!(fixture.gate.calls(GatedCall::Acquire), 0);
    assert!(said(fh.lease_any_of(["a", "a"]).acquire().await).contains("twice"));
    assert!(said(fh.lease_any_of([""; 0]).acquire().await).starts_with("keys are 0"));
    let bad = Fencehold::connect("redis://h").await.unwrap_err();
    assert!(matches!(bad, Error::BadInput(_)) && bad.to_string().contains("unknown scheme"));
    assert!(matches!(Fencehold::builder().connect().await, Err(Error::BadInput(_))));
    let both = Fencehold::builder().url("memory:").store(fh.store().clone());
    assert!(matches!(both.connect().await, Err(Error::BadInput(_))));
}

#[tokio::test]
async fn namespaces_are_worlds_apart() {
    let fixture = GatedFixture::new().await;
    let store = fixture.fh.store().clone();
    let other = done(Fencehold::builder().store(store).namespace("team-b").connect()).await;
    let ours = fixture.acquire("k", 10_000).await;
    let theirs = done(other.lease("k").try_acquire()).await;
    assert_eq!((ours.token(), theirs.token()), (Token::new(1), Token::new(1)));
    assert_eq!(other.namespace().as_str(), "team-b");
}

#[tokio::test]
async fn a_refusal_that_fits_no_other_kind_is_handed_through() {
    let fixture = GatedFixture::new().await;
    fixture.gate.next(GatedCall::Acquire, refuse(Refusal::TokensExhausted));
    let error = within(fixture.fh.lease("k").acquire()).await.unwrap_err();
    assert!(matches!(error, Error::Refused { .. }) && !error.is_retryable());
    assert!(fixture.gate.capabilities().supports_fair_waiting);
}

#[tokio::test]
async fn a_store_that_lets_nobody_stand_in_line_is_polled_with_new_hold_ids() {
    let fixture = GatedFixture::new().await;
    let owner = fencehold::Owner::new("alice").unwrap();
    let held = Refusal::Held { owner, task: None, remaining_ms: 1, token: Token::new(1) };
    fixture.gate.next(GatedCall::Acquire, refuse(held.clone()));
    let asking = spawn(&fixture, "k", Some(secs(60)));
    fixture.gate.arrived(GatedCall::Acquire, 1).await;
    fixture.pass_to_next(1_600).await;
    let lease = within(asking).await.expect("the asker").expect("the lease");
    let asked = fixture.gate.acquires();
    assert_ne!(asked[0].hold_id, asked[1].hold_id);
    drop(lease);

    fixture.gate.next(GatedCall::Acquire, refuse(held));
    let asking = spawn(&fixture, "k", Some(Duration::from_millis(1)));
    fixture.gate.arrived(GatedCall::Acquire, 3).await;
    fixture.pass_to_next(1).await;
    assert!(matches!(done(asking).await, Err(Error::Held { .. })));
    assert_eq!(fixture.gate.calls(GatedCall::Acquire), 3, "its time is up: it asks no more");
}

#[tokio::test]
async fn a_store_that_calls_every_hold_id_ended_is_not_asked_for_ever() {
    let fixture = GatedFixture::new().await;
    for _ in 0..100 {
        fixture
            .gate
            .next(GatedCall::Acquire, refuse(Refusal::HoldIdUsed { token: None, outcome: None }));
    }
    let error = within(fixture.fh.lease("k").acquire()).await.unwrap_err();
    assert!(matches!(error, Error::HoldIdUsed { .. }) && !error.is_retryable());
    assert!(fixture.gate.calls(GatedCall::Acquire) < 20);
}
