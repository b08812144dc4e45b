//! A value that any number of tasks can wait on, whatever runs them.

use std::collections::BTreeMap;
use std::fmt;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, Waker};

use crate::wake::lock;

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

    /// Waits until `look` finds something.
    pub(crate) fn when<R, F>(&self, look: F) -> WatchFuture<'_, T, F>
    where
        F: FnMut(&T, u64) -> Option<R> + Unpin,
    {
        WatchFuture { watch: self, look, place: None }
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

/// Waits on a [`WatchValue`].
pub(crate) struct WatchFuture<'a, T, F> {
    watch: &'a WatchValue<T>,
    look: F,
    place: Option<u64>,
}

impl<T, R, F> Future for WatchFuture<'_, T, F>
where
    F: FnMut(&T, u64) -> Option<R> + Unpin,
{
    type Output = R;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<R> {
        let watch = self.watch;
        let mut inner = lock(&watch.inner);
        if let Some(found) = (self.look)(&inner.value, inner.version) {
            return Poll::Ready(found);
        }
        let place = *self.place.get_or_insert_with(|| {
            inner.next_place += 1;
            inner.next_place
        });
        inner.waiting.insert(place, context.waker().clone());
        Poll::Pending
    }
}

impl<T, F> Drop for WatchFuture<'_, T, F> {
    fn drop(&mut self) {
        if let Some(place) = self.place {
            lock(&self.watch.inner).waiting.remove(&place);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::wake::{WakeFlag, block_on};

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
