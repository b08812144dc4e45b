//! The guard: what it gives back, what it stops, and what it never tells.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use fencehold::store::{LeaseStore, MemoryStore, StoreError};
use fencehold::{Error, Fencehold, Lease, LeaseBuilder, LeaseOutcome, LeaseState, LeaseWatch, LostCause};

use tokio::sync::{mpsc, oneshot};

use crate::gated_store::{
    CallFate, GatedCall, GatedFixture, RENEWED_BY_MS, done, is_ready, next, secs, until, within,
};

#[test]
fn handles_and_guards_can_go_anywhere() {
    fn anywhere<T: Send + Sync + 'static>() {}
    fn sent<T: Send>(_: &T) {}
    anywhere::<(Fencehold, LeaseBuilder, Lease, LeaseWatch, Error)>();
    anywhere::<(fencehold::Election, fencehold::Leader, fencehold::Observer)>();
    anywhere::<(fencehold::blocking::Fencehold, fencehold::blocking::Lease)>();
    let connecting = async {
        let fh = Fencehold::connect("memory:").await?;
        let lease = fh.lease("k").acquire().await?;
        lease.run(async {}).await?;
        lease.release().await
    };
    sent(&connecting);
}

#[tokio::test]
async fn a_dropped_guard_gives_its_lease_back() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let watch = lease.watch();
    drop(lease);
    assert_eq!(watch.state(), LeaseState::Lost, "to its watchers it is over at once");
    assert_eq!(within(watch.lost()).await, LostCause::Released);
    let view = fixture.until("k", |view| view.holder.is_none()).await;
    assert_eq!(view.endings[0].outcome, LeaseOutcome::Released);
}

#[tokio::test]
async fn a_dropped_guard_keeps_trying_to_give_its_lease_back_and_outlives_its_handle() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let away = StoreError::Unavailable { message: "away".to_owned() };
    fixture.gate.next(GatedCall::Release, CallFate::Refuse(away));
    let GatedFixture { fh, gate, time } = fixture;
    let call = fh.call();
    drop((fh, lease));
    gate.arrived(GatedCall::Release, 1).await;
    time.pass_to_next(50).await;
    gate.arrived(GatedCall::Release, 2).await;
    let key = fencehold::Key::new("k").expect("a key");
    within(async {
        // The second release has come to the gate; the store behind it answers in order.
        let is_held = async || gate.get(&call, key.clone()).await.unwrap().unwrap().holder.is_some();
        while is_held().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_thread_ends_with_its_last_handle_and_lets_the_store_go() {
    let store = MemoryStore::open(Arc::new(fencehold::clock::ManualClock::new())).expect("a store");
    let store: Arc<dyn LeaseStore> = Arc::new(store);
    let fh = done(Fencehold::builder().store(Arc::clone(&store)).connect()).await;
    let lease = done(fh.lease("k").acquire()).await;
    drop(fh);
    assert_eq!(lease.state(), LeaseState::Held, "a lease keeps its handle going");
    done(lease.release()).await;
    within(async {
        while Arc::strong_count(&store) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_release_that_meets_a_renewal_stays_a_release() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let go = fixture.gate.delay_request(GatedCall::Renew);
    fixture.pass(RENEWED_BY_MS);
    fixture.gate.arrived(GatedCall::Renew, 1).await;
    let watch = lease.watch();
    done(lease.release()).await;
    go.send(()).expect("the renewal waits");
    let other = fixture.acquire("other", 10_000).await;
    fixture.pass(RENEWED_BY_MS);
    until(&mut other.watch(), |snapshot| snapshot.deadline_ms == fixture.now_ms() + 10_000).await;
    assert_eq!(watch.snapshot().lost, Some(LostCause::Released));
    let view = fixture.view("k").await;
    assert_eq!((view.holder, view.endings[0].outcome), (None, LeaseOutcome::Released));
    assert_eq!(fixture.gate.renewals().last().map(Vec::len), Some(1), "it is not renewed any more");
}

#[tokio::test]
async fn a_release_is_tried_again_and_told_apart_from_a_loss() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    fixture.gate.next(GatedCall::Release, CallFate::LoseAnswer);
    let releasing = tokio::spawn(lease.release());
    fixture.gate.arrived(GatedCall::Release, 1).await;
    fixture.pass_to_next(50).await;
    done(releasing).await.expect("the same release gets the same answer");

    let lease = fixture.acquire("k", 10_000).await;
    fixture.revoke("k").await;
    let error = within(lease.release()).await.unwrap_err();
    assert!(error.to_string().contains("revoked by alice (it ran away)"), "{error}");
    assert!(matches!(error, Error::Lost { current_token: Some(current), .. } if current.get() == 3));
}

#[tokio::test]
async fn work_is_dropped_the_moment_its_lease_is_lost() {
    struct RecordedRelease(Arc<AtomicBool>);
    impl Drop for RecordedRelease {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }
    let fixture = GatedFixture::new().await;
    let lease = Arc::new(fixture.acquire("k", 10_000).await);
    let dropped = Arc::new(AtomicBool::new(false));
    let noted = RecordedRelease(Arc::clone(&dropped));
    let running = tokio::spawn({
        let lease = Arc::clone(&lease);
        async move {
            let work = async move {
                let _noted = noted;
                std::future::pending::<()>().await;
            };
            lease.run(work).await
        }
    });
    tokio::task::yield_now().await;
    fixture.gate.close(GatedCall::Renew);
    fixture.pass(8_999);
    fixture.gate.arrived(GatedCall::Renew, 1).await;
    assert!(!dropped.load(Ordering::SeqCst) && !running.is_finished());
    fixture.pass(1);
    let error = done(running).await.unwrap_err();
    assert!(matches!(error, Error::Lost { cause: LostCause::NotRenewed { .. }, .. }), "{error}");
    assert!(dropped.load(Ordering::SeqCst));
}

#[tokio::test]
async fn work_that_ends_after_its_lease_was_lost_is_not_taken_for_done() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    assert_eq!(within(lease.run(async { 7 })).await, Ok(7));
    fixture.gate.close(GatedCall::Renew);
    // The work blocks its thread until the time is up: there is no moment at which it could be dropped.
    let late = within(lease.run(async { fixture.pass(9_000) })).await;
    assert!(matches!(late, Err(Error::Lost { .. })), "{late:?}");
}

#[tokio::test]
async fn a_watch_follows_every_new_deadline_to_the_end() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let mut watch = lease.watch();
    let first = within(watch.changed()).await.expect("news");
    // The first call tells what is.
    assert_eq!((first.deadline_ms, first.state), (lease.deadline_ms(), LeaseState::Held));
    assert_eq!(lease.remaining(), secs(9), "to nine tenths of the ttl");
    assert!(!is_ready(watch.changed()), "and then there is nothing new");
    fixture.pass(RENEWED_BY_MS);
    let second = within(watch.changed()).await.expect("news");
    assert_eq!(second.deadline_ms, fixture.now_ms() + 10_000);
    lease.release().await.expect("held");
    let last = within(watch.changed()).await.expect("news");
    assert_eq!((last.state, last.lost), (LeaseState::Lost, Some(LostCause::Released)));
    assert_eq!(within(watch.changed()).await, None, "of a lease that is over there is nothing to wait for");
}

#[tokio::test]
async fn closing_gives_everything_back_and_ends_every_wait() {
    let fixture = GatedFixture::new().await;
    let store = fixture.fh.store().clone();
    let other = Fencehold::builder().store(store).connect().await.expect("a handle");
    let theirs = done(other.lease("b").acquire()).await;
    let held = fixture.acquire("a", 10_000).await;
    let builder = fixture.fh.lease("b");
    let waiting = tokio::spawn(async move { builder.acquire().await });
    fixture.until("b", |view| view.waiter_count == 1).await;
    within(fixture.fh.close()).await;
    assert!(matches!(done(waiting).await, Err(Error::Closed)));
    fixture.until("b", |view| view.waiter_count == 0).await;
    assert_eq!(held.state(), LeaseState::Lost);
    assert!(fixture.view("a").await.holder.is_none());
    done(held.release()).await;
    let refused = within(fixture.fh.lease("a").try_acquire()).await.unwrap_err();
    assert!(refused.to_string().contains("this handle was closed"));
    done(theirs.release()).await;
}

#[tokio::test]
async fn a_renewal_that_finds_its_lease_released_is_no_loss() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let watch = lease.watch();
    let go = fixture.gate.delay_request(GatedCall::Renew);
    fixture.pass(RENEWED_BY_MS);
    fixture.gate.arrived(GatedCall::Renew, 1).await;
    // Released, and the answer is lost; the renewal comes to the store after that, and its answer is the first to arrive.
    fixture.gate.next(GatedCall::Release, CallFate::LoseAnswer);
    let releasing = tokio::spawn(lease.release());
    fixture.until("k", |view| view.holder.is_none()).await;
    go.send(()).expect("the renewal waits");
    assert_eq!(within(watch.lost()).await, LostCause::Released);
    within(releasing).await.expect("the releaser").expect("it was given back");
}

#[tokio::test]
async fn a_detached_lease_is_neither_renewed_nor_given_back() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let mut watch = lease.watch();
    let hold = lease.detach().expect("held");
    assert_eq!((hold.key.as_str(), hold.token.get()), ("k", 1));
    assert_eq!(
        within(watch.changed()).await.expect("news").state,
        LeaseState::Lost,
        "for the guard it is over"
    );
    fixture.pass(RENEWED_BY_MS);
    let other = fixture.acquire("other", 10_000).await;
    within(fixture.fh.close()).await;
    assert_eq!(other.state(), LeaseState::Lost);
    assert!(fixture.view("other").await.holder.is_none(), "what is held is given back, and this is not");
    assert!(fixture.view("k").await.holder.is_some());
    assert!(fixture.gate.renewals().is_empty());
    // Who has the hold still holds it.
    let renewed = done(fixture.gate.renew(&fixture.fh.call(), vec![hold.clone()])).await;
    assert_eq!(renewed.results[0].as_ref().expect("held").token, hold.token);
}

#[tokio::test]
async fn a_lost_lease_cannot_be_detached() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    fixture.gate.close(GatedCall::Renew);
    fixture.pass(9_000);
    let lost = lease.detach().expect_err("lost");
    assert!(matches!(lost, Error::Lost { .. }), "{lost}");
}

#[tokio::test]
async fn work_under_a_key_is_dropped_where_its_lease_is_lost_and_releases_it_where_it_ends() {
    let fixture = GatedFixture::new().await;
    let lease = || fixture.fh.lease("k").ttl(secs(10));
    let token = done(lease().run(async |lease| lease.token().get())).await;
    assert_eq!((token, fixture.view("k").await.holder), (1, None));

    let (begun, mut beginning) = mpsc::unbounded_channel();
    let (alive, dropped) = oneshot::channel::<()>();
    let working = lease();
    let working = tokio::spawn(async move {
        let work = async move |_: Arc<Lease>| {
            let _alive = alive;
            begun.send(()).unwrap();
            std::future::pending::<()>().await;
        };
        working.run(work).await
    });
    next(&mut beginning).await;
    fixture.revoke("k").await;
    fixture.pass(10_000);
    let error = within(working).await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Lost { .. }), "{error}");
    assert!(within(dropped).await.is_err());
}
