//! Driving many calls with threads alone: those that are under way, and those that start together.

use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use fencehold_test_store::{TestCaller, TestStore};

/// How long an answer that must come may take, in real time. Only a broken store ever waits this long.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Does the same thing on many threads that start together. The results are in the order of their numbers.
pub(super) fn at_once<T: Send>(count: usize, act: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let (barrier, act) = (&Barrier::new(count), &act);
    thread::scope(|scope| {
        let start = |nth| {
            scope.spawn(move || {
                barrier.wait();
                act(nth)
            })
        };
        let threads: Vec<_> = (0..count).map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a thread that did not panic"))
            .collect()
    })
}

/// A call under way on a thread of its own.
pub(super) struct PendingCall<T> {
    answer: Receiver<Option<T>>,
    caller: TestCaller,
}

impl<T: Send + 'static> PendingCall<T> {
    pub(super) fn start(
        test_store: Arc<dyn TestStore>,
        call: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        let (sender, answer) = mpsc::channel();
        let caller = TestCaller::default();
        let call = caller.calls(call);
        thread::spawn(move || {
            test_store.drive(Box::pin(async move {
                let answer = call.await;
                let _ = sender.send(answer);
            }));
        });
        PendingCall { answer, caller }
    }

    /// The answer, which must come.
    pub(super) fn answer(self) -> T {
        let answer = self.answer.recv_timeout(ANSWER_WITHIN).expect("an answer that comes in time");
        answer.expect("a call that was not dropped")
    }

    /// The answer, if it is there already.
    pub(super) fn answered(&self) -> Option<T> {
        self.answer.try_recv().ok().flatten()
    }

    /// Never looks at the call again: an answer that comes from now on is not picked up.
    pub(super) fn freeze(&self) {
        self.caller.looks_away();
    }

    /// Drops the call, as a caller does that gives up. The answer, if it had been picked up before.
    pub(super) fn leave(self) -> Option<T> {
        self.caller.goes();
        self.answer.recv_timeout(ANSWER_WITHIN).expect("a call that can be dropped")
    }
}

impl<T> Drop for PendingCall<T> {
    /// A case that has failed leaves no thread behind.
    fn drop(&mut self) {
        self.caller.goes();
    }
}
