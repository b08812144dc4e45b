//! Driving one future with its thread alone: a small executor.

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::TestStore;

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Drives a future to its end on this thread.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(fencehold_contract::outside_runtime(future));
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(answer) => return answer,
            Poll::Pending => thread::park(),
        }
    }
}

/// Drives a future of an arena's store to its end, the way that arena does it.
///
/// # Panics
///
/// When the arena does not drive it to its end.
pub fn drive<T: Send>(test_store: &(impl TestStore + ?Sized), future: impl Future<Output = T> + Send) -> T {
    let mut answer = None;
    test_store.drive(Box::pin(async { answer = Some(future.await) }));
    answer.expect("an arena drives to the end")
}
