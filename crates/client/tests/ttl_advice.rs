//! What ttl would suit, from what was seen through the whole library.

use std::time::Duration;

use crate::gated_store::{GatedCall, GatedFixture, secs, until, within};

#[tokio::test]
async fn advice_is_made_of_the_work_the_round_trip_and_a_margin() {
    let fixture = GatedFixture::new().await;
    assert_eq!(fixture.fh.ttl_advice("k"), None);
    for work_ms in [1_000, 2_000, 2_400] {
        let lease = fixture.acquire("k", 60_000).await;
        fixture.pass(work_ms);
        lease.release().await.expect("held");
    }
    let advice = fixture.fh.ttl_advice("k").expect("three pieces of work");
    assert_eq!((advice.samples, advice.p99_work), (3, Duration::from_millis(2_400)));
    assert_eq!((advice.p99_round_trip, advice.margin), (Duration::ZERO, Duration::from_millis(600)));
    assert_eq!(advice.suggested_ttl, secs(3));
    assert_eq!(advice.min_remaining, None);

    let go = fixture.gate.delay_answer(GatedCall::Acquire);
    let builder = fixture.fh.lease("other").ttl(secs(60));
    let slow = tokio::spawn(async move { builder.try_acquire().await });
    fixture.until_known("other").await;
    fixture.pass(200);
    go.send(()).expect("the answer waits");
    let other = within(slow).await.expect("the asker").expect("a lease");
    let advice = fixture.fh.ttl_advice("k").expect("an advice");
    assert_eq!(advice.p99_round_trip, Duration::from_millis(200));
    assert_eq!(advice.suggested_ttl, Duration::from_millis(2_600 + 650));

    let mut watch = other.watch();
    watch.changed().await;
    fixture.pass(30_000);
    until(&mut watch, |snapshot| snapshot.deadline_ms > fixture.now_ms() + 50_000).await;
    other.release().await.expect("held");
    let slack = within(async {
        loop {
            // Noted by the thread that renews, a moment after the watch has changed.
            match fixture.fh.ttl_advice("other").and_then(|advice| advice.min_remaining) {
                Some(slack) => return slack,
                None => tokio::task::yield_now().await,
            }
        }
    });
    assert_eq!(slack.await, Duration::from_millis(54_000 - 30_200));
    // Every key starts with nothing.
    assert_eq!(fixture.fh.ttl_advice("").map(|advice| advice.samples), Some(4));
}
