//! Polling what a store gives outside any runtime, on a thread that may belong to one all the same.

/// A future that may be driven by hand on any thread.
///
/// The parts of a runtime count how often they are polled, and at some point answer 'not yet' until the runtime's own loop
/// has turned. Whoever drives a future by hand, on a thread of that runtime, would wait for ever.
pub fn alone<F: Future>(future: F) -> impl Future<Output = F::Output> {
    #[cfg(any(
        feature = "etcd",
        feature = "file",
        feature = "object",
        feature = "postgres",
        feature = "remote"
    ))]
    let future = tokio::task::unconstrained(future);
    future
}

#[cfg(all(test, feature = "file"))]
mod tests {
    use crate::conformance::block_on;

    #[test]
    fn a_future_can_be_driven_by_hand_within_a_runtime_however_often() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // More often than a runtime lets one task go on.
            for nth in 0..1_000 {
                let (sender, receiver) = tokio::sync::oneshot::channel();
                sender.send(nth).unwrap();
                assert_eq!(block_on(receiver), Ok(nth));
            }
        });
    }
}
