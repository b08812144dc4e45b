//! The engine behind `memory:` and `file:`.
#![allow(clippy::unwrap_used, reason = "a test may stop at anything")]

mod many_waiters;
mod memory;
mod model;

use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// The answer to a call, if it is there.
fn look<T>(call: &mut Pin<Box<dyn Future<Output = T> + Send + '_>>) -> Option<T> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(answer) => Some(answer),
        Poll::Pending => None,
    }
}
