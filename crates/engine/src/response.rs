//! A response to come from a thread that takes requests one after the other.

use std::pin::Pin;
use std::task::{Context, Poll};

use futures_channel::oneshot;

/// Where the response goes.
pub type ResponseSender<T> = oneshot::Sender<T>;

/// A response to come. `None`: there will be none. If it is dropped first, `abandon` is called: with the response, if that had
/// arrived and was not taken, or with `None` while the request is still under way.
#[derive(Debug)]
pub struct PendingResponse<T, F: FnOnce(Option<T>)> {
    receiver: oneshot::Receiver<T>,
    abandon: Option<F>,
}

impl<T, F: FnOnce(Option<T>)> PendingResponse<T, F> {
    /// One to be waited for.
    pub fn new(receiver: oneshot::Receiver<T>, abandon: F) -> Self {
        PendingResponse { receiver, abandon: Some(abandon) }
    }
}

/// Both ends of the way back.
pub fn response_channel<T>() -> (ResponseSender<T>, oneshot::Receiver<T>) {
    oneshot::channel()
}

impl<T, F: FnOnce(Option<T>) + Unpin> Future for PendingResponse<T, F> {
    type Output = Option<T>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = Pin::new(&mut self.receiver).poll(context).map(Result::ok);
        if polled.is_ready() {
            self.abandon = None;
        }
        polled
    }
}

impl<T, F: FnOnce(Option<T>)> Drop for PendingResponse<T, F> {
    fn drop(&mut self) {
        if let Some(abandon) = self.abandon.take() {
            // Closed first: what does not arrive now never does.
            self.receiver.close();
            abandon(self.receiver.try_recv().ok().flatten());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::pin::pin;
    use std::task::Waker;

    use super::*;

    /// What is abandoned when a response is dropped after these steps.
    fn abandoned(sends: bool, takes: bool) -> Vec<Option<u8>> {
        let abandoned = RefCell::new(Vec::new());
        let (sender, receiver) = response_channel();
        {
            let response = PendingResponse::new(receiver, |response| abandoned.borrow_mut().push(response));
            let mut response = pin!(response);
            let mut context = Context::from_waker(Waker::noop());
            assert!(response.as_mut().poll(&mut context).is_pending());
            if sends {
                sender.send(7).unwrap();
            }
            if takes {
                assert_eq!(response.poll(&mut context), Poll::Ready(Some(7)));
            }
        }
        abandoned.into_inner()
    }

    #[test]
    fn a_response_is_abandoned_unless_it_was_taken() {
        assert_eq!(abandoned(false, false), [None]);
        assert_eq!(abandoned(true, false), [Some(7)]);
        assert_eq!(abandoned(true, true), []);
    }
}
