//! Time that only the test moves, and a clock that tells what is waited for.

use std::sync::Arc;
use std::time::Duration;

use fencehold::clock::{Clock, ManualClock, Timestamp};
use tokio::sync::watch;

use super::within;

/// A clock that is moved by hand, and tells until when the handle's thread sleeps.
#[derive(Debug)]
struct ObservedClock {
    manual: ManualClock,
    nap: watch::Sender<u64>,
}

impl Clock for ObservedClock {
    fn now(&self) -> Timestamp {
        self.manual.now()
    }

    fn real_time_until(&self, until_ms: u64) -> Option<Duration> {
        self.nap.send_replace(until_ms);
        None
    }

    fn on_move(&self, nudge: Box<dyn Fn() + Send + Sync>) {
        self.manual.on_move(nudge);
    }
}

/// Time, as the test moves it.
#[derive(Clone, Debug)]
pub(crate) struct Time {
    pub(super) clock: ManualClock,
    nap: watch::Receiver<u64>,
}

impl Time {
    /// A clock for a handle, and the hand that moves it.
    pub(super) fn by_hand() -> (Self, Arc<dyn Clock>) {
        let clock = ManualClock::new();
        let telling = ObservedClock { manual: clock.clone(), nap: watch::Sender::default() };
        let nap = telling.nap.subscribe();
        (Time { clock, nap }, Arc::new(telling))
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    pub(crate) fn pass(&self, ms: u64) {
        self.clock.advance_ms(ms);
    }

    pub(crate) fn pass_to(&self, at_ms: u64) {
        self.clock.advance_ms(at_ms - self.now_ms());
    }

    /// Waits until the handle's thread sleeps until some moment that is at most `most_ms` away, and goes there.
    pub(crate) async fn pass_to_next(&self, most_ms: u64) {
        let next_ms = self.sleeps(most_ms).await;
        self.pass_to(next_ms);
    }

    /// Waits until the handle's thread sleeps until some moment that is at most `most_ms` away.
    pub(crate) async fn sleeps(&self, most_ms: u64) -> u64 {
        let now_ms = self.now_ms();
        let mut nap = self.nap.clone();
        let next = within(nap.wait_for(|until_ms| (now_ms + 1..=now_ms + most_ms).contains(until_ms))).await;
        *next.expect("the clock")
    }
}
