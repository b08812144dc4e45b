//! One leads, the others see who, and the next takes over at once.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use fencehold::fence::KeyToken;
use fencehold::{Leader, LeaderView, LeadershipEnd, LeaseState};
use tokio::sync::mpsc;

use crate::gated_store::{GatedFixture, done, is_ready, next, secs, within};

fn name(leading: Option<&LeaderView>) -> Option<&str> {
    leading.map(|leading| leading.owner.as_str())
}

#[tokio::test]
async fn a_leader_that_resigns_is_followed_by_the_next_in_line() {
    let fixture = GatedFixture::new().await;
    let election = fixture.fh.election("leader").ttl(secs(10));
    let first = done(election.clone().owner("first").task("host-1:80").campaign()).await;
    let campaigning = election.clone().owner("second");
    let second = tokio::spawn(async move { campaigning.campaign().await });
    fixture.until("leader", |view| view.waiter_count == 1).await;
    let mut observer = done(election.observe()).await;
    let leading = observer.leader().expect("someone leads");
    assert_eq!((leading.owner.as_str(), leading.token), ("first", first.token()));
    assert_eq!(leading.task.as_ref().map(fencehold::Task::as_str), Some("host-1:80"));
    assert!(!is_ready(observer.changed()) && !second.is_finished());

    first.resign().await.expect("led to the end");
    let second = within(second).await.expect("the second").expect("elected");
    done(observer.changed()).await;
    assert_eq!(name(observer.leader()), Some("second"));
    assert_eq!(observer.leader().map(|leading| leading.token), Some(second.token()));
    assert_eq!((second.token().get(), second.lease().state()), (2, LeaseState::Held));
}

#[tokio::test]
async fn an_observer_sees_that_nobody_leads_and_who_comes_then() {
    let fixture = GatedFixture::new().await;
    let election = fixture.fh.election("leader").ttl(secs(10));
    let mut observer = done(election.observe()).await;
    assert_eq!(observer.leader(), None);
    let noise = fixture.acquire("leader/other", 10_000).await;
    assert!(!is_ready(observer.changed()), "another key is no news");
    let leader = done(election.campaign()).await;
    done(observer.changed()).await;
    assert_eq!(name(observer.leader()), Some("me"));
    let acquired_at = observer.leader().expect("someone leads").acquired_at;
    assert_eq!(acquired_at, UNIX_EPOCH + Duration::from_millis(fixture.fh.clock().now().wall_ms));
    assert_eq!(KeyToken::from(&leader), leader.key_token());
    leader.resign().await.expect("led");
    done(observer.changed()).await;
    assert_eq!(observer.leader(), None);
    drop(noise);
}

#[tokio::test]
async fn an_observer_that_slept_through_everything_still_learns_who_leads() {
    let fixture = GatedFixture::new().await;
    let election = fixture.fh.election("leader").ttl(secs(10));
    let mut observer = done(election.observe()).await;
    // More than the store remembers: the observer's place in the story is gone.
    for _ in 0..fencehold::limits::EVENTS_KEPT / 2 + 10 {
        fixture.pass(1);
        fixture.acquire("noise", 10_000).await.release().await.expect("held");
    }
    let leader = done(election.campaign()).await;
    done(observer.changed()).await;
    assert_eq!(name(observer.leader()), Some("me"));
    leader.resign().await.expect("led");
}

#[tokio::test]
async fn a_leader_that_loses_its_lease_knows_it_leads_no_more() {
    let fixture = GatedFixture::new().await;
    let leader = done(fixture.fh.election("leader").ttl(secs(10)).campaign()).await;
    fixture.revoke("leader").await;
    fixture.pass(3_834);
    within(leader.lost()).await;
    assert_eq!(leader.state(), LeaseState::Lost);
    assert!(!within(leader.resign()).await.unwrap_err().is_retryable());
}

#[tokio::test]
async fn who_leads_works_until_superseded_and_campaigns_again_until_stopped() {
    let fixture = GatedFixture::new().await;
    let election = fixture.fh.election("leader").ttl(secs(10));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let (said, mut saying) = mpsc::unbounded_channel();
    let leading = tokio::spawn(async move {
        let work = |leader: Arc<Leader>| {
            said.send(leader.token().get()).unwrap();
            std::future::pending::<u64>()
        };
        election.lead(stopped, work).await
    });
    assert_eq!(next(&mut saying).await, 1);
    fixture.revoke("leader").await;
    fixture.pass(10_000);
    let again = next(&mut saying).await;
    assert!(again > 1, "a later leadership has a larger token");
    stop.send(()).unwrap();
    assert_eq!(within(leading).await.unwrap(), Ok(LeadershipEnd::Stopped));
    assert_eq!(fixture.view("leader").await.holder, None, "it has resigned");
}

#[tokio::test]
async fn work_that_ends_by_itself_ends_the_leadership() {
    let fixture = GatedFixture::new().await;
    let election = fixture.fh.election("leader").ttl(secs(10));
    let led = election.lead(std::future::pending::<()>(), async |leader| leader.token().get());
    assert_eq!(within(led).await, Ok(LeadershipEnd::Done(1)));
    assert_eq!(fixture.view("leader").await.holder, None);
}
