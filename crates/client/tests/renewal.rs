//! A lease lives by its renewals, and its holder knows when it does not.

use fencehold::store::HolderView;
use fencehold::{LeaseOutcome, LeaseState, LostCause};

use crate::gated_store::{
    CallFate, GatedCall, GatedFixture, RENEWED_BY_MS, done, is_ready, secs, until, within,
};

#[tokio::test]
async fn renewals_keep_a_lease_across_ten_ttls() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let (token, began_ms) = (lease.token(), fixture.now_ms());
    let mut watch = lease.watch();
    while fixture.now_ms() < began_ms + 100_000 {
        fixture.pass(RENEWED_BY_MS);
        let deadline_ms = fixture.now_ms() + 10_000;
        until(&mut watch, |snapshot| snapshot.deadline_ms == deadline_ms).await;
    }
    let view = fixture.view("k").await;
    assert_eq!((view.token, lease.token(), lease.state()), (token, token, LeaseState::Held));
    assert!(view.holder.is_some_and(|holder| holder.age_ms >= 100_000));
    lease.release().await.expect("held to the end");
}

#[test]
fn a_blocked_executor_loses_no_lease() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime().block_on(async {
        let fixture = GatedFixture::new().await;
        let lease = fixture.acquire("k", 10_000).await;
        let mut watch = lease.watch();
        let time = fixture.time.clone();
        let elsewhere = std::thread::spawn(move || {
            let runtime = runtime();
            for _ in 0..10 {
                time.pass(RENEWED_BY_MS);
                let deadline_ms = time.now_ms() + 10_000;
                runtime.block_on(until(&mut watch, |snapshot| snapshot.deadline_ms == deadline_ms));
            }
        });
        // This thread is the only one of its executor, and does nothing else until then.
        elsewhere.join().expect("renewed all the while");
        assert_eq!(lease.state(), LeaseState::Held);
        assert!(fixture.view("k").await.holder.is_some());
    });
}

#[tokio::test]
async fn many_leases_are_renewed_in_one_call() {
    let fixture = GatedFixture::new().await;
    let mut leases = Vec::new();
    for nth in 0..50 {
        leases.push(fixture.acquire(&format!("k/{nth}"), 10_000).await);
    }
    fixture.pass(RENEWED_BY_MS);
    let deadline_ms = fixture.now_ms() + 10_000;
    for lease in &leases {
        until(&mut lease.watch(), |snapshot| snapshot.deadline_ms == deadline_ms).await;
    }
    let renewals = fixture.gate.renewals();
    assert_eq!(renewals.iter().map(Vec::len).collect::<Vec<_>>(), [50]);
    assert!(fixture.gate.timeout_ms(GatedCall::Renew).iter().all(|ms| *ms <= 10_000 / 6));
}

#[tokio::test]
async fn a_lease_that_drains_can_recover() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let mut watch = lease.watch();
    fixture.gate.next(GatedCall::Renew, CallFate::LoseAnswer);
    fixture.pass(RENEWED_BY_MS);
    let drained = until(&mut watch, |snapshot| snapshot.state == LeaseState::AtRisk).await;
    assert_eq!(lease.state(), LeaseState::AtRisk);
    assert!(!is_ready(lease.lost()));
    fixture.pass_to_next(10_000 / 12).await;
    let held = until(&mut watch, |snapshot| snapshot.state == LeaseState::Held).await;
    assert!(held.deadline_ms > drained.deadline_ms);
    lease.release().await.expect("held to the end");
}

#[tokio::test]
async fn a_lease_that_does_not_recover_is_lost_exactly_at_nine_tenths() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let began_ms = fixture.now_ms();
    assert_eq!((lease.deadline_ms(), lease.lost_at_ms()), (began_ms + 10_000, began_ms + 9_000));
    let mut watch = lease.watch();
    fixture.gate.close(GatedCall::Renew);
    fixture.pass(RENEWED_BY_MS);
    until(&mut watch, |snapshot| snapshot.state == LeaseState::AtRisk).await;
    // One more try that is seen to be made at this very moment: the thread has looked at the clock.
    let tried = fixture.gate.calls(GatedCall::Renew);
    fixture.pass_to(began_ms + 8_999);
    fixture.gate.arrived(GatedCall::Renew, tried + 1).await;
    assert!(!is_ready(lease.lost()));
    assert_eq!(lease.state(), LeaseState::AtRisk);
    fixture.pass(1);
    let why = within(lease.lost()).await;
    assert_eq!(fixture.now_ms(), began_ms + 9_000);
    let LostCause::NotRenewed { failure: Some(failure), .. } = &why else { panic!("{why:?}") };
    assert!(failure.contains("the gate is closed"), "{failure}");
    assert_eq!(within(lease.lost()).await, why, "it can be asked many times");
    assert_eq!(lease.state(), LeaseState::Lost);
    assert!(fixture.view("k").await.holder.is_some(), "the store has not given it to anybody yet");
}

#[tokio::test]
async fn a_lease_is_lost_to_whoever_looks_even_if_its_thread_is_late() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    fixture.gate.close(GatedCall::Renew);
    fixture.pass(9_000);
    assert_eq!(lease.state(), LeaseState::Lost);
}

#[tokio::test]
async fn a_lost_lease_stays_lost_whatever_arrives_later() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    fixture.gate.close(GatedCall::Renew);
    fixture.pass(RENEWED_BY_MS);
    until(&mut lease.watch(), |snapshot| snapshot.state == LeaseState::AtRisk).await;
    // The last try is carried out in time, and its answer arrives a moment too late.
    let tried = fixture.gate.calls(GatedCall::Renew);
    let go = fixture.gate.delay_answer(GatedCall::Renew);
    fixture.gate.open(GatedCall::Renew);
    fixture.pass_to(lease.lost_at_ms() - 100);
    fixture.gate.arrived(GatedCall::Renew, tried + 1).await;
    fixture
        .until("k", |view| view.holder.as_ref().is_some_and(|holder| holder.remaining_ms == 10_000))
        .await;
    fixture.pass(100);
    within(lease.lost()).await;
    let other = fixture.acquire("other", 10_000).await;
    let mut watch = other.watch();
    watch.changed().await;
    go.send(()).expect("the answer waits");
    fixture.pass(RENEWED_BY_MS);
    until(&mut watch, |snapshot| snapshot.deadline_ms == fixture.now_ms() + 10_000).await;
    assert_eq!(lease.state(), LeaseState::Lost);
    assert_eq!(fixture.gate.renewals().last().map(Vec::len), Some(1), "and is renewed no more");
}

#[tokio::test]
async fn a_revoked_lease_is_lost_at_once_and_tells_by_whom_and_why() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    fixture.revoke("k").await;
    fixture.pass(RENEWED_BY_MS);
    let why = within(lease.lost()).await;
    assert!(matches!(why, LostCause::Ended { outcome: Some(LeaseOutcome::Revoked), .. }));
    assert_eq!(why.current_token().map(fencehold::Token::get), Some(lease.token().get() + 1));
    assert!(fixture.now_ms() < lease.lost_at_ms(), "long before its time");
    assert_eq!(why.to_string(), "it was revoked by alice (it ran away)");
    let work = async { unreachable!("no work under a lost lease") };
    let error = within(lease.run(work)).await.unwrap_err();
    assert!(error.to_string().contains("revoked by alice (it ran away)"), "{error}");
    assert!(!error.is_retryable());
    assert_eq!(within(lease.release()).await.unwrap_err(), error);
}

#[tokio::test]
async fn a_call_that_hangs_holds_up_no_other_lease() {
    let fixture = GatedFixture::new().await;
    let slow = fixture.acquire("slow", 10_000).await;
    fixture.gate.next(GatedCall::Renew, CallFate::Hang);
    fixture.pass(RENEWED_BY_MS);
    fixture.gate.arrived(GatedCall::Renew, 1).await;
    let quick = fixture.acquire("quick", 3_000).await;
    fixture.pass(1_150);
    let deadline_ms = fixture.now_ms() + 3_000;
    until(&mut quick.watch(), |snapshot| snapshot.deadline_ms == deadline_ms).await;
    assert_eq!(slow.state(), LeaseState::Held);
    // A sixth of the ttl is the store's time to answer, and half of that again is ours.
    let mut watch = slow.watch();
    watch.changed().await;
    fixture.pass(10_000 / 6 * 3 / 2 - 1_150);
    until(&mut watch, |snapshot| snapshot.state == LeaseState::AtRisk).await;
    fixture.pass(10_000 / 12);
    until(&mut watch, |snapshot| snapshot.state == LeaseState::Held).await;
}

#[tokio::test]
async fn a_store_that_panics_takes_no_lease_with_it() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let mut watch = lease.watch();
    fixture.gate.next(GatedCall::Renew, CallFate::Panic);
    fixture.pass(RENEWED_BY_MS);
    until(&mut watch, |snapshot| snapshot.state == LeaseState::AtRisk).await;
    fixture.pass_to_next(10_000 / 12).await;
    until(&mut watch, |snapshot| snapshot.state == LeaseState::Held).await;
}

#[tokio::test]
async fn a_deadline_counts_from_before_the_renewal_left() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let mut watch = lease.watch();
    let go = fixture.gate.delay_request(GatedCall::Renew);
    fixture.pass(RENEWED_BY_MS);
    let sent_ms = fixture.now_ms();
    fixture.gate.arrived(GatedCall::Renew, 1).await;
    fixture.pass(1_000);
    go.send(()).expect("the renewal waits");
    let renewed = until(&mut watch, |snapshot| snapshot.deadline_ms > sent_ms + 8_000).await;
    assert_eq!((renewed.deadline_ms, renewed.lost_at_ms), (sent_ms + 10_000, sent_ms + 9_000));
    let remaining_ms = fixture.view("k").await.holder.expect("held").remaining_ms;
    assert_eq!(remaining_ms, 10_000, "the store counts from when it decided, and is never behind the holder");
}

#[tokio::test]
async fn a_hold_ends_by_itself_at_its_max_age() {
    let fixture = GatedFixture::new().await;
    let lease = done(fixture.fh.lease("k").ttl(secs(10)).max_age(secs(25)).acquire()).await;
    let began_ms = fixture.now_ms();
    let mut watch = lease.watch();
    watch.changed().await;
    while fixture.now_ms() + 4_000 < began_ms + 24_000 {
        fixture.pass(RENEWED_BY_MS);
        watch.changed().await;
    }
    assert_eq!(lease.deadline_ms(), began_ms + 25_000);
    assert_eq!(lease.lost_at_ms(), began_ms + 24_000, "the time to stop in is a tenth of a whole ttl");
    fixture.pass_to(began_ms + 24_000);
    let why = within(lease.lost()).await;
    assert!(matches!(why, LostCause::Ended { outcome: Some(LeaseOutcome::AgedOut), .. }), "{why:?}");
}

/// Waits until the holder of `k` is asked to yield, or is not any more.
async fn until_asked(fixture: &GatedFixture, is_asked: bool) {
    let asked = |holder: &HolderView| holder.yield_request.is_some() == is_asked;
    fixture.until("k", |view| view.holder.as_ref().is_some_and(asked)).await;
}

#[tokio::test]
async fn a_holder_learns_who_asks_it_to_yield_and_when_that_is_withdrawn() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let mut watch = lease.watch();
    assert!(!is_ready(lease.yield_requested()));
    let urgent = fixture.fh.lease("k").owner("urgent").task("run-9").priority(5);
    let contender = tokio::spawn(async move { urgent.preempt_within(secs(60)).acquire().await });
    until_asked(&fixture, true).await;
    let asked_ms = fixture.now_ms();
    fixture.pass(RENEWED_BY_MS);
    let notice = within(lease.yield_requested()).await.expect("still held");
    assert_eq!((notice.contender.as_str(), notice.priority), ("urgent", 5));
    assert_eq!(notice.task.as_ref().map(fencehold::Task::as_str), Some("run-9"));
    assert_eq!(notice.deadline_ms, asked_ms + 60_000);
    assert_eq!(lease.yield_request(), Some(notice));
    contender.abort();
    until_asked(&fixture, false).await;
    fixture.pass(RENEWED_BY_MS);
    until(&mut watch, |snapshot| {
        snapshot.yield_request.is_none() && snapshot.deadline_ms > asked_ms + 14_000
    })
    .await;
    assert_eq!(lease.yield_request(), None);
}

#[tokio::test]
async fn a_holder_that_yields_makes_room_at_once_and_one_that_stays_is_not_renewed() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let asked_ms = fixture.now_ms();
    let urgent = fixture.fh.lease("k").priority(5);
    let contender = tokio::spawn(async move { urgent.preempt_within(secs(12)).acquire().await });
    until_asked(&fixture, true).await;
    fixture.pass(RENEWED_BY_MS);
    within(lease.yield_requested()).await.expect("still held");
    assert_eq!(lease.deadline_ms(), asked_ms + 12_000);
    lease.release().await.expect("held until now");
    let urgent = within(contender).await.expect("the contender").expect("its turn");
    assert_eq!(urgent.token().get(), 2);
}

#[tokio::test]
async fn a_store_that_was_rewound_is_told_from_one_that_revoked() {
    let fixture = GatedFixture::new().await;
    let lease = fixture.acquire("k", 10_000).await;
    let renewed = fencehold::store::RenewLeaseBatchResponse {
        results: vec![Err(fencehold_core::Refusal::StoreRewound {
            token: lease.token(),
            current_token: fencehold::Token::NONE,
        })],
        waited_ms: 0,
    };
    fixture.gate.next(GatedCall::Renew, CallFate::Renewed(renewed));
    fixture.pass(RENEWED_BY_MS);
    let why = within(lease.lost()).await;
    assert!(
        matches!(why, LostCause::StoreRewound { .. }) && why.current_token() == Some(fencehold::Token::NONE)
    );
    assert!(why.to_string().contains("have the store advanced"));
}

/// Of every holder that can be notified at once: in the same process, and through the socket of a directory. No time passes, so no renewal is due.
#[tokio::test]
async fn a_holder_learns_of_a_revocation_while_no_time_passes() {
    use std::sync::Arc;

    use fencehold::clock::ManualClock;
    use fencehold::store::{RevokeLeasesRequest, RevokeTarget};
    use fencehold::{Fencehold, Key, Owner, Reason};
    use fencehold_contract::LeaseStore;
    use fencehold_store_file::FileStore;

    let work_dir = tempfile::tempdir().expect("a directory");
    let clock = Arc::new(ManualClock::new());
    let memory: Arc<dyn LeaseStore> =
        Arc::new(fencehold_engine::MemoryStore::open(clock.clone()).expect("a store"));
    let owner: Arc<dyn LeaseStore> =
        Arc::new(FileStore::open_or_create(work_dir.path(), clock.clone()).expect("a store"));
    let connect = |store: &Arc<dyn LeaseStore>| {
        Fencehold::builder().store(Arc::clone(store)).clock(clock.clone()).connect()
    };
    // It serves from now on, and the next one asks it.
    let served = connect(&owner).await.expect("it answers");
    let through: Arc<dyn LeaseStore> =
        Arc::new(FileStore::open(work_dir.path(), clock.clone()).expect("a store"));
    for (how, holder, other) in
        [("memory", &memory, &memory), ("owner", &owner, &through), ("socket", &through, &owner)]
    {
        let fh = connect(holder).await.expect("it answers");
        let lease = fh.lease(how).acquire().await.expect("free");
        let request = RevokeLeasesRequest {
            target: RevokeTarget::Key { key: Key::new(how).expect("a key"), only_token: None },
            by: Owner::new("alice").expect("a name"),
            reason: Reason::new("it ran away").expect("a reason"),
        };
        assert_eq!(other.revoke(&fh.call(), request).await.expect("revoked").len(), 1, "{how}");
        let why = within(lease.lost()).await;
        assert!(matches!(why, LostCause::Ended { outcome: Some(LeaseOutcome::Revoked), .. }), "{how}: {why}");
        fh.close().await;
    }
    served.close().await;
}
