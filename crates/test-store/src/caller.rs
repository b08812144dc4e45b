//! A caller that can leave while its call is under way: the response then finds no reader.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// One who has made a call.
#[derive(Clone, Debug, Default)]
pub struct TestCaller(Arc<Control>);

#[derive(Debug, Default)]
struct Control {
    gone: AtomicBool,
    /// Locked while the call is being looked at.
    looks_away: Mutex<bool>,
    waker: Mutex<Option<Waker>>,
}

impl TestCaller {
    /// The call as this caller makes it. It answers `None` once the caller has gone.
    pub fn calls<F: Future + Send>(
        &self,
        call: F,
    ) -> impl Future<Output = Option<F::Output>> + Send + use<F> {
        PendingCall { call: Some(Box::pin(call)), control: Arc::clone(&self.0) }
    }

    /// Never looks at the call again: an answer that comes from now on is not picked up.
    pub fn looks_away(&self) {
        *self.0.looks_away.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    /// Drops the call, as a caller does that gives up.
    pub fn goes(&self) {
        self.0.gone.store(true, Ordering::SeqCst);
        let waker = self.0.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

struct PendingCall<F> {
    call: Option<Pin<Box<F>>>,
    control: Arc<Control>,
}

impl<F: Future> Future for PendingCall<F> {
    type Output = Option<F::Output>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // The waker first, then the wish: a wish in between finds the waker.
        *self.control.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(context.waker().clone());
        if self.control.gone.load(Ordering::SeqCst) {
            self.call = None;
            return Poll::Ready(None);
        }
        let control = Arc::clone(&self.control);
        let looks_away = control.looks_away.lock().unwrap_or_else(PoisonError::into_inner);
        if *looks_away {
            return Poll::Pending;
        }
        let Some(call) = &mut self.call else { return Poll::Ready(None) };
        let polled = call.as_mut().poll(context);
        drop(looks_away);
        if polled.is_ready() {
            self.call = None;
        }
        polled.map(Some)
    }
}
