//! Driving many calls with threads alone: those that are under way, and those that start together.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

use crate::arena::Arena;

/// How long an answer that must come may take, in real time. Only a broken store ever waits this long.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

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
pub(super) struct Pending<T> {
    answer: Receiver<Option<T>>,
    control: Arc<Control>,
}

#[derive(Default)]
struct Control {
    dropped: AtomicBool,
    /// Locked while the call is being looked at.
    frozen: Mutex<bool>,
    waker: Mutex<Option<Waker>>,
}

impl<T: Send + 'static> Pending<T> {
    pub(super) fn start(arena: Arc<dyn Arena>, call: impl Future<Output = T> + Send + 'static) -> Self {
        let (sender, answer) = mpsc::channel();
        let control = Arc::new(Control::default());
        let call = Droppable { call: Some(Box::pin(call)), control: control.clone() };
        thread::spawn(move || {
            arena.drive(Box::pin(async move {
                let answer = call.await;
                let _ = sender.send(answer);
            }));
        });
        Pending { answer, control }
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
        *self.control.frozen.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Drops the call, as a caller does that gives up. The answer, if it had been picked up before.
    pub(super) fn leave(self) -> Option<T> {
        self.control.drop_call();
        self.answer.recv_timeout(ANSWER_WITHIN).expect("a call that can be dropped")
    }
}

impl<T> Drop for Pending<T> {
    /// A case that has failed leaves no thread behind.
    fn drop(&mut self) {
        self.control.drop_call();
    }
}

impl Control {
    fn drop_call(&self) {
        self.dropped.store(true, Ordering::SeqCst);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// A call that can be dropped from outside. It answers `None` once the call is gone.
struct Droppable<F> {
    call: Option<Pin<Box<F>>>,
    control: Arc<Control>,
}

impl<F: Future> Future for Droppable<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The waker first, then the wish: whoever wishes in between finds the waker.
        *self.control.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        if self.control.dropped.load(Ordering::SeqCst) {
            self.call = None;
            return Poll::Ready(None);
        }
        let control = Arc::clone(&self.control);
        let frozen = control.frozen.lock().unwrap_or_else(PoisonError::into_inner);
        if *frozen {
            return Poll::Pending;
        }
        let Some(call) = &mut self.call else { return Poll::Ready(None) };
        let polled = call.as_mut().poll(context);
        drop(frozen);
        if polled.is_ready() {
            self.call = None;
        }
        polled.map(Some)
    }
}
