//! Sleeping until a moment of the clock, and whichever of two futures comes first. Works on every executor: the
//! handle's own thread does the waking.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::Duration;

use fencehold_contract::clock::Clock;

use crate::wake::{WakeFlag, lock};

/// Whole milliseconds, rounded up: a wait is never cut short.
pub(crate) fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// Who sleeps until when.
pub(crate) struct Timers {
    clock: Arc<dyn Clock>,
    wake: Arc<WakeFlag>,
    sleeping: Mutex<Sleeping>,
}

struct Sleeping {
    next_place: u64,
    /// When the thread that wakes will look again by itself.
    looks_at_ms: u64,
    until: BTreeMap<(u64, u64), Waker>,
}

impl Timers {
    pub(crate) fn new(clock: Arc<dyn Clock>, wake: Arc<WakeFlag>) -> Self {
        let sleeping = Sleeping { next_place: 0, looks_at_ms: u64::MAX, until: BTreeMap::new() };
        Timers { clock, wake, sleeping: Mutex::new(sleeping) }
    }

    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.now().store_ms
    }

    /// Waits until the clock reaches `until_ms`.
    pub(crate) async fn sleep_until(&self, until_ms: u64) {
        let mut sleeper = Sleeper { timers: self, until_ms, place: None };
        std::future::poll_fn(move |context| {
            if self.now_ms() >= until_ms {
                return Poll::Ready(());
            }
            let mut sleeping = lock(&self.sleeping);
            let place = *sleeper.place.get_or_insert_with(|| {
                sleeping.next_place += 1;
                sleeping.next_place
            });
            sleeping.until.insert((until_ms, place), context.waker().clone());
            // The thread that wakes may itself be asleep until a later moment.
            let too_late = until_ms < sleeping.looks_at_ms;
            drop(sleeping);
            if too_late {
                self.wake.ring();
            }
            Poll::Pending
        })
        .await;
    }

    /// Wakes everybody whose time has come.
    pub(crate) fn fire(&self, now_ms: u64) {
        let mut sleeping = lock(&self.sleeping);
        let later = sleeping.until.split_off(&(now_ms + 1, 0));
        let due = std::mem::replace(&mut sleeping.until, later);
        drop(sleeping);
        due.into_values().for_each(Waker::wake);
    }

    /// The thread is awake and about to look at what there is to do. Until it has decided how long to sleep, everything
    /// that comes in makes it look once more: it may already have looked where that was put.
    pub(crate) fn attend(&self) {
        lock(&self.sleeping).looks_at_ms = u64::MAX;
    }

    /// Something is to be done at this moment: sees to it that the thread looks in time.
    pub(crate) fn heed(&self, at_ms: u64) {
        if at_ms < lock(&self.sleeping).looks_at_ms {
            self.wake.ring();
        }
    }

    /// How long the thread may sleep, when there is something else to do at `other_ms`. `None`: until the bell rings.
    ///
    /// While there is anything to look at it sleeps for `most` at a time: a suspended machine does not count its sleep as
    /// waiting, but the boot-time clock does.
    pub(crate) fn nap(&self, other_ms: Option<u64>, most: Duration) -> Option<Duration> {
        let mut sleeping = lock(&self.sleeping);
        let first_ms = sleeping.until.first_key_value().map(|((until_ms, _), _)| *until_ms);
        let Some(next_ms) = first_ms.into_iter().chain(other_ms).min() else {
            sleeping.looks_at_ms = u64::MAX;
            return None;
        };
        // Set in the same step in which the first sleeper was looked at: a later caller sees it.
        sleeping.looks_at_ms = next_ms.min(self.now_ms().saturating_add(ms(most)));
        self.clock.real_time_until(next_ms).map(|limit| limit.min(most))
    }
}

/// One who sleeps, until it is dropped.
struct Sleeper<'a> {
    timers: &'a Timers,
    until_ms: u64,
    place: Option<u64>,
}

impl Drop for Sleeper<'_> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            lock(&self.timers.sleeping).until.remove(&(self.until_ms, place));
        }
    }
}

/// Which of two futures came first.
pub(crate) enum First<A, B> {
    Left(A),
    Right(B),
}

/// Waits for whichever comes first, and drops the other. The left one is looked at first.
pub(crate) async fn first<A: Future, B: Future>(left: A, right: B) -> First<A::Output, B::Output> {
    let mut left = pin!(left);
    let mut right = pin!(right);
    std::future::poll_fn(move |context| {
        if let Poll::Ready(output) = left.as_mut().poll(context) {
            return Poll::Ready(First::Left(output));
        }
        right.as_mut().poll(context).map(First::Right)
    })
    .await
}

#[cfg(test)]
mod tests {
    use fencehold_contract::clock::ManualClock;

    use super::*;

    fn timers() -> (Timers, Arc<WakeFlag>) {
        let wake = Arc::new(WakeFlag::default());
        (Timers::new(Arc::new(ManualClock::new()), Arc::clone(&wake)), wake)
    }

    #[test]
    fn a_thread_that_looks_in_time_is_not_woken_for_later_things() {
        let (timers, wake) = timers();
        let now_ms = timers.now_ms();
        timers.attend();
        timers.nap(Some(now_ms + 500), Duration::from_secs(1));
        timers.heed(now_ms + 500);
        assert!(!wake.is_rung());
        timers.heed(now_ms + 499);
        assert!(wake.is_rung());
    }

    #[test]
    fn what_comes_in_while_the_thread_is_awake_is_not_missed() {
        let (timers, wake) = timers();
        let now_ms = timers.now_ms();
        timers.nap(Some(now_ms + 500), Duration::from_secs(1));
        // It woke up and has looked at the leases; now one comes in that is due later than it meant to look before.
        timers.attend();
        timers.heed(now_ms + 900);
        assert!(wake.is_rung());
    }

    #[test]
    fn a_thread_with_nothing_to_do_is_woken_for_anything() {
        let (timers, wake) = timers();
        assert_eq!(timers.nap(None, Duration::from_secs(1)), None);
        timers.heed(u64::MAX - 1);
        assert!(wake.is_rung());
    }

    #[test]
    fn a_wait_is_rounded_up_and_never_cut_short() {
        assert_eq!(ms(Duration::from_micros(1)), 1);
        assert_eq!(ms(Duration::from_millis(7)), 7);
        assert_eq!(ms(Duration::MAX), u64::MAX);
    }
}
