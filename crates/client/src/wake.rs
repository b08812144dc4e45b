//! One thread's wake-up call, and driving a future with it.

use std::pin::pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake};
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
        let rung = lock(&self.rung);
        let mut rung = match limit {
            None => self
                .heard
                .wait_while(rung, |rung| !*rung)
                .unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.heard.wait_timeout_while(rung, limit, |rung| !*rung);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        *rung = false;
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

    fn wake_by_ref(self: &Arc<Self>) {
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
}
