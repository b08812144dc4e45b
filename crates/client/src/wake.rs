//! One thread's wake-up call, and driving a future with it; and a value that any number of tasks can wait on, whatever runs
//! them.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

/// Locks, also after a panic elsewhere: nothing here leaves its data half-changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Wakes a thread. A wake-up without a waiter ends the next wait.
#[derive(Debug, Default)]
pub(crate) struct WakeFlag {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl WakeFlag {
    pub(crate) fn ring(&self) {
        *lock(&self.rung) = true;
        self.heard.notify_one();
    }

    /// Waits for a ring, at most for `limit`.
    pub(crate) fn wait(&self, limit: Option<Duration>) {
        let limit = limit.unwrap_or(Duration::MAX);
        let waited = self.heard.wait_timeout_while(lock(&self.rung), limit, |rung| !*rung);
        *waited.unwrap_or_else(PoisonError::into_inner).0 = false;
    }

    #[cfg(test)]
    pub(crate) fn is_rung(&self) -> bool {
        *lock(&self.rung)
    }
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.ring();
    }
}

/// Drives one future on this thread until it is done. No runtime is needed.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let wake = Arc::new(WakeFlag::default());
    let waker = Arc::clone(&wake).into();
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(fencehold_contract::outside_runtime(future));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        wake.wait(None);
    }
}

/// A value with a version, and those who wait for it to change.
pub(crate) struct WatchValue<T> {
    inner: Mutex<WatchState<T>>,
}

struct WatchState<T> {
    value: T,
    version: u64,
    waiting: BTreeMap<u64, Waker>,
    next_place: u64,
}

impl<T> WatchValue<T> {
    pub(crate) fn new(value: T) -> Self {
        WatchValue {
            inner: Mutex::new(WatchState { value, version: 1, waiting: BTreeMap::new(), next_place: 0 }),
        }
    }

    /// Looks at the value and its version.
    pub(crate) fn read<R>(&self, look: impl FnOnce(&T, u64) -> R) -> R {
        let inner = lock(&self.inner);
        look(&inner.value, inner.version)
    }

    /// Changes the value, and tells everybody if `change` gives something back.
    pub(crate) fn update<R>(&self, change: impl FnOnce(&mut T) -> Option<R>) -> Option<R> {
        let mut inner = lock(&self.inner);
        let changed = change(&mut inner.value)?;
        inner.version += 1;
        let waiting = std::mem::take(&mut inner.waiting);
        // Wakers are other people's code: never call them with the lock held.
        drop(inner);
        waiting.into_values().for_each(Waker::wake);
        Some(changed)
    }

    /// The same where every change counts.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        self.update(|value| {
            change(value);
            Some(())
        });
    }

    /// Waits until `look` finds something.
    pub(crate) async fn when<R>(&self, mut look: impl FnMut(&T, u64) -> Option<R>) -> R {
        let mut waiter = Waiter { watch: self, place: None };
        // Not `move`: that would copy the place out of the waiter, whose end has to know it.
        std::future::poll_fn(|context| {
            let mut inner = lock(&self.inner);
            if let Some(found) = look(&inner.value, inner.version) {
                return Poll::Ready(found);
            }
            let place = *waiter.place.get_or_insert_with(|| {
                inner.next_place += 1;
                inner.next_place
            });
            inner.waiting.insert(place, context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

impl<T: Default> Default for WatchValue<T> {
    fn default() -> Self {
        WatchValue::new(T::default())
    }
}

impl<T: fmt::Debug> fmt::Debug for WatchValue<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.read(|value, _| value.fmt(f))
    }
}

/// One who waits on a [`WatchValue`], until it is dropped.
struct Waiter<'a, T> {
    watch: &'a WatchValue<T>,
    place: Option<u64>,
}

impl<T> Drop for Waiter<'_, T> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            lock(&self.watch.inner).waiting.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_before_the_wait_is_not_lost() {
        let wake = WakeFlag::default();
        wake.ring();
        wake.wait(None);
        wake.wait(Some(Duration::ZERO));
        assert!(!wake.is_rung());
    }

    #[test]
    fn a_future_that_another_thread_completes_is_driven_to_its_end() {
        let (sender, receiver) = futures_channel::oneshot::channel();
        let thread = std::thread::spawn(move || sender.send(7));
        assert_eq!(block_on(receiver), Ok(7));
        assert_eq!(thread.join().expect("the sender"), Ok(()));
    }

    #[test]
    fn everybody_who_waits_is_told() {
        let watch = Arc::new(WatchValue::new(0));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let watch = Arc::clone(&watch);
                std::thread::spawn(move || block_on(watch.when(|value, _| (*value == 2).then_some(*value))))
            })
            .collect();
        for next in [1, 2] {
            watch.update(|value| {
                *value = next;
                Some(())
            });
        }
        for thread in waiting {
            assert_eq!(thread.join().expect("a waiter"), 2);
        }
    }

    #[test]
    fn who_stops_waiting_leaves_nothing_behind() {
        let watch = WatchValue::new(());
        let waker = Arc::new(WakeFlag::default()).into();
        for _ in 0..100 {
            let mut when = std::pin::pin!(watch.when(|(), _| None::<()>));
            assert!(when.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        }
        assert!(lock(&watch.inner).waiting.is_empty());
    }
}
