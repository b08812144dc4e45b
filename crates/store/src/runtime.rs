//! The thread on which a handle's requests are made: callers may be on any executor, or on none.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use crate::error::StoreError;

/// How long closing waits for what is under way.
const IDLE_WITHIN: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Runtime {
    handle: tokio::runtime::Handle,
    /// Dropped to end the thread.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// How many calls are under way.
    open: watch::Sender<usize>,
}

impl Runtime {
    pub(crate) fn start(name: &str) -> Result<Arc<Self>, StoreError> {
        let fault = |error: std::io::Error| StoreError::Unavailable {
            why: format!("no thread could be started: {error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(fault)?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let _ = runtime.block_on(stopped);
                // What is still under way is left to itself: its outcome is unknown to everybody.
                runtime.shutdown_background();
            })
            .map_err(fault)?;
        let open = watch::Sender::new(0);
        Ok(Arc::new(Runtime { handle, stop: Mutex::new(Some(stop)), open }))
    }

    /// Carries something out in the background.
    #[cfg(feature = "remote")]
    pub(crate) fn spawn(&self, errand: impl Future<Output = ()> + Send + 'static) {
        let open = Open::new(&self.open);
        self.handle.spawn(async move {
            errand.await;
            drop(open);
        });
    }

    /// Carries a call out. If its caller goes before it has taken the answer, `orphaned` is done with it. `None`: the
    /// thread ended first.
    #[cfg(feature = "object")]
    pub(crate) async fn run<T, O>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
        orphaned: impl FnOnce(T) -> O + Send + 'static,
    ) -> Option<T>
    where
        T: Send + 'static,
        O: Future<Output = ()> + Send + 'static,
    {
        let (sender, delivery) = oneshot::channel();
        let open = Open::new(&self.open);
        let runtime = self.handle.clone();
        self.handle.spawn(async move {
            let answer = call.await;
            // Nobody there: dropping it sees to that.
            let _ = sender.send(Delivery { answer: Some((answer, orphaned)), runtime, open: Some(open) });
        });
        let taken = delivery.await.ok().and_then(|mut delivery| delivery.answer.take());
        taken.map(|(answer, _)| answer)
    }

    /// The same for a caller that can wait.
    pub(crate) fn run_blocking<T: Send + 'static>(
        &self,
        call: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (sender, answer) = std::sync::mpsc::channel();
        self.handle.spawn(async move {
            // The caller waits below.
            let _ = sender.send(call.await);
        });
        let ended = || StoreError::Unavailable { why: "the store's thread ended".to_owned() };
        answer.recv().unwrap_or_else(|_| Err(ended()))
    }

    /// Waits until nothing is under way, but not for ever.
    pub(crate) async fn idle(&self) {
        let mut open = self.open.subscribe();
        let (done, idle) = oneshot::channel();
        self.handle.spawn(async move {
            let _ = tokio::time::timeout(IDLE_WITHIN, open.wait_for(|open| *open == 0)).await;
            let _ = done.send(());
        });
        let _ = idle.await;
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// An answer on its way to its caller. One that is dropped without having been taken is an orphan, also where it had
/// arrived and its caller did not look any more.
#[cfg(feature = "object")]
struct Delivery<T, F, O>
where
    T: Send + 'static,
    F: FnOnce(T) -> O + Send + 'static,
    O: Future<Output = ()> + Send + 'static,
{
    answer: Option<(T, F)>,
    runtime: tokio::runtime::Handle,
    open: Option<Open>,
}

#[cfg(feature = "object")]
impl<T, F, O> Drop for Delivery<T, F, O>
where
    T: Send + 'static,
    F: FnOnce(T) -> O + Send + 'static,
    O: Future<Output = ()> + Send + 'static,
{
    fn drop(&mut self) {
        if let Some((answer, orphaned)) = self.answer.take() {
            let open = self.open.take();
            self.runtime.spawn(async move {
                orphaned(answer).await;
                drop(open);
            });
        }
    }
}

/// One call that is under way.
struct Open(watch::Sender<usize>);

impl Open {
    fn new(open: &watch::Sender<usize>) -> Self {
        open.send_modify(|open| *open += 1);
        Open(open.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

#[cfg(all(test, feature = "object"))]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// R14: the grant has arrived, and its caller goes without having looked.
    #[test]
    fn an_answer_that_arrived_and_was_never_taken_is_an_orphan_too() {
        let runtime = Runtime::start("test").unwrap();
        let (sender, orphans) = std::sync::mpsc::channel();
        let orphaned = move |answer: u8| async move {
            let _ = sender.send(answer);
        };
        {
            let (go, gate) = oneshot::channel::<()>();
            let call = async move {
                let _ = gate.await;
                7
            };
            let mut asking = pin!(runtime.run(call, orphaned));
            assert!(asking.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            go.send(()).unwrap();
            // One thread carries them out in order: when this is answered, so is the one before it.
            runtime.run_blocking(async { Ok(()) }).unwrap();
        }
        assert_eq!(orphans.recv().unwrap(), 7);
    }

    #[test]
    fn an_answer_that_was_taken_is_no_orphan() {
        let runtime = Runtime::start("test").unwrap();
        let (sender, orphans) = std::sync::mpsc::channel();
        let orphaned = move |answer: u8| async move {
            let _ = sender.send(answer);
        };
        assert_eq!(crate::conformance::block_on(runtime.run(async { 7 }, orphaned)), Some(7));
        runtime.run_blocking(async { Ok(()) }).unwrap();
        assert!(orphans.try_recv().is_err());
    }
}
