//! Polling what a store gives outside any runtime, on a thread that may belong to one all the same.

/// A future that may be driven by hand on any thread.
///
/// The parts of a runtime count how often they are polled, and at some point answer 'not yet' until the runtime's own loop
/// has turned. A caller that drives a future by hand, on a thread of that runtime, would wait for ever.
pub fn outside_runtime<F: Future>(future: F) -> impl Future<Output = F::Output> {
    tokio::task::unconstrained(future)
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn a_future_can_be_driven_by_hand_within_a_runtime_however_often() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // More often than a runtime lets one task go on.
            for nth in 0..1_000 {
                let (sender, receiver) = tokio::sync::oneshot::channel();
                sender.send(nth).unwrap();
                let polled =
                    pin!(super::outside_runtime(receiver)).poll(&mut Context::from_waker(Waker::noop()));
                assert_eq!(polled, Poll::Ready(Ok(nth)));
            }
        });
    }
}
