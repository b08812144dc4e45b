//! Where requests wait for the engine's thread.
//!
//! Taking them costs one lock for all that wait. A sender wakes the thread only once the batch is full:
//! a bell for each would cost both sides more than deciding does.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Messages on their way to one thread.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    state: Mutex<InboxState<T>>,
    wake: Condvar,
}

#[derive(Debug)]
struct InboxState<T> {
    messages: VecDeque<T>,
    /// With how many the thread wants to be woken; `None`: it does not wait.
    rings_at: Option<usize>,
    closed: bool,
}

impl<T> Inbox<T> {
    pub(super) fn new() -> Self {
        let state = InboxState { messages: VecDeque::new(), rings_at: None, closed: false };
        Inbox { state: Mutex::new(state), wake: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, InboxState<T>> {
        // Nothing here stops in the middle of a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a message. False: the inbox is closed, and it is dropped.
    pub(super) fn leave(&self, message: T) -> bool {
        let mut state = self.state();
        if state.closed {
            return false;
        }
        state.messages.push_back(message);
        let rings = state.rings_at.is_some_and(|many| state.messages.len() >= many);
        if rings {
            state.rings_at = None;
        }
        drop(state);
        if rings {
            self.wake.notify_one();
        }
        true
    }

    /// Takes what is there, in the order in which it came, at most so many.
    pub(super) fn take(&self, most: usize, into: &mut impl Extend<T>) {
        let mut state = self.state();
        let many = most.min(state.messages.len());
        into.extend(state.messages.drain(..many));
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.state().messages.len()
    }

    /// Waits until so many are there, for so long at most; `None`: for as long as it takes.
    pub(super) fn wait(&self, many: usize, limit: Option<Duration>) {
        let mut state = self.state();
        if state.messages.len() >= many {
            return;
        }
        state.rings_at = Some(many);
        let waits = |state: &mut InboxState<T>| state.rings_at.is_some();
        let mut state = match limit {
            None => self.wake.wait_while(state, waits).unwrap_or_else(PoisonError::into_inner),
            Some(limit) => {
                let waited = self.wake.wait_timeout_while(state, limit, waits);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        state.rings_at = None;
    }

    /// Takes no more. What waited is dropped, after the lock: dropping a question may ask another.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        let messages = std::mem::take(&mut state.messages);
        drop(state);
        drop(messages);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn messages_come_in_their_order_and_no_more_than_asked_for() {
        let inbox = Inbox::new();
        for nth in 0..5 {
            assert!(inbox.leave(nth));
        }
        let mut taken = Vec::new();
        inbox.take(3, &mut taken);
        assert_eq!((taken, inbox.len()), (vec![0, 1, 2], 2));
    }

    #[test]
    fn one_who_waits_for_many_is_woken_by_the_last_of_them() {
        let inbox = Arc::new(Inbox::new());
        let waiter = thread::spawn({
            let inbox = Arc::clone(&inbox);
            move || {
                inbox.wait(3, None);
                inbox.len()
            }
        });
        for nth in 0..3 {
            inbox.leave(nth);
        }
        assert_eq!(waiter.join().unwrap(), 3);
    }

    #[test]
    fn one_who_waited_for_long_enough_goes_on_with_what_is_there() {
        let inbox = Inbox::new();
        inbox.leave(1);
        inbox.wait(2, Some(Duration::from_millis(1)));
        assert_eq!(inbox.len(), 1);
        assert!(inbox.leave(2), "and is not rung for afterwards");
    }

    #[test]
    fn a_closed_inbox_takes_nothing() {
        let inbox = Inbox::new();
        inbox.leave(1);
        inbox.close();
        assert!(!inbox.leave(2));
        assert_eq!(inbox.len(), 0);
    }
}
