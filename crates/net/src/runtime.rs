//! The thread on which a handle's requests are made: callers may be on any executor, or on none.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use fencehold_contract::StoreError;
use tokio::sync::{Notify, oneshot};

/// How long closing waits for what is under way.
const IDLE_WITHIN: Duration = Duration::from_secs(2);

/// A thread with a runtime of its own, for the requests of one handle.
#[derive(Debug)]
pub struct Runtime {
    handle: tokio::runtime::Handle,
    /// Dropped to end the thread.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    underway: Arc<Underway>,
}

impl Runtime {
    /// Starts the thread, under this name.
    pub fn start(name: &str) -> Result<Arc<Self>, StoreError> {
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
        Ok(Arc::new(Runtime { handle, stop: Mutex::new(Some(stop)), underway: Arc::default() }))
    }

    /// Carries something out in the background.
    pub fn spawn(&self, errand: impl Future<Output = ()> + Send + 'static) {
        let open = Open::new(&self.underway);
        self.handle.spawn(async move {
            errand.await;
            drop(open);
        });
    }

    /// Carries a call out. If its caller goes before it has taken the answer, `orphaned` is done with it. `None`: the
    /// thread ended first.
    pub async fn run<T, O>(
        &self,
        call: impl Future<Output = T> + Send + 'static,
        orphaned: impl FnOnce(T) -> O + Send + 'static,
    ) -> Option<T>
    where
        T: Send + 'static,
        O: Future<Output = ()> + Send + 'static,
    {
        let (sender, delivery) = oneshot::channel();
        let open = Open::new(&self.underway);
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
    pub fn run_blocking<T: Send + 'static>(
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
    pub async fn idle(&self) {
        let underway = Arc::clone(&self.underway);
        let (done, idle) = oneshot::channel();
        self.handle.spawn(async move {
            let _ = tokio::time::timeout(IDLE_WITHIN, underway.none()).await;
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

/// The calls that are under way.
#[derive(Debug, Default)]
struct Underway {
    count: AtomicUsize,
    ended: Notify,
}

impl Underway {
    /// Waits until there is none.
    async fn none(&self) {
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // First in line, then a look: the last one may end in between.
            ended.as_mut().enable();
            if self.count.load(Ordering::Acquire) == 0 {
                return;
            }
            ended.await;
        }
    }
}

/// One call that is under way.
struct Open(Arc<Underway>);

impl Open {
    fn new(underway: &Arc<Underway>) -> Self {
        underway.count.fetch_add(1, Ordering::Relaxed);
        Open(Arc::clone(underway))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::Release) == 1 {
            self.0.ended.notify_waiters();
        }
    }
}

#[cfg(test)]
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
        assert_eq!(fencehold_test_store::block_on(runtime.run(async { 7 }, orphaned)), Some(7));
        runtime.run_blocking(async { Ok(()) }).unwrap();
        assert!(orphans.try_recv().is_err());
    }
}
