//! The thread that owns what a handle needs for its requests, above all its connections.
//!
//! Every call is a task on that thread. A response that its caller did not take is undone there: a lease is released, claimed
//! jobs go back to their queue.

use std::cell::Cell;
use std::convert::Infallible;
use std::fmt;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use fencehold_contract::StoreError;
use tokio::sync::{mpsc, oneshot, watch};

/// How long closing waits for tasks that are under way.
const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// A thread with a runtime of its own, and the state that its tasks share.
pub struct Actor<S> {
    tasks: Tasks<S>,
    open: OpenTasks,
    closing: watch::Sender<bool>,
    closed: watch::Receiver<()>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

type PendingTask = Pin<Box<dyn Future<Output = ()>>>;
type Task<S> = Box<dyn FnOnce(S) -> PendingTask + Send>;
type Tasks<S> = mpsc::UnboundedSender<Task<S>>;

impl<S: Clone + 'static> Actor<S> {
    /// Starts a thread of this name. `make` makes the state on that thread, within its runtime; its error is the caller's.
    pub fn start(
        name: &str,
        make: impl FnOnce(Closing) -> Result<S, StoreError> + Send + 'static,
    ) -> Result<Self, StoreError> {
        Self::start_with(name, CLOSE_WITHIN, make)
    }

    fn start_with(
        name: &str,
        close_within: Duration,
        make: impl FnOnce(Closing) -> Result<S, StoreError> + Send + 'static,
    ) -> Result<Self, StoreError> {
        let unavailable = |error: std::io::Error| StoreError::Unavailable {
            message: format!("the thread {name} could not be started: {error}"),
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(unavailable)?;
        let (tasks, inbox) = mpsc::unbounded_channel();
        let (closing, to_close) = watch::channel(false);
        let (done, closed) = watch::channel(());
        let open: OpenTasks = Arc::new(watch::Sender::new(0));
        let still_open = open.subscribe();
        let (opened, outcome) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || {
                let closing = Closing(to_close);
                let state = {
                    let _within = runtime.enter();
                    make(closing.clone())
                };
                let state = match state {
                    Ok(state) => state,
                    Err(error) => return drop(opened.send(Err(error))),
                };
                let _ = opened.send(Ok(()));
                let serve = serve(state, inbox, &closing, still_open, close_within);
                tokio::task::LocalSet::new().block_on(&runtime, serve);
                // A name that is being looked up must not hold up the closing.
                runtime.shutdown_background();
                drop(done);
            })
            .map_err(unavailable)?;
        outcome.recv().unwrap_or_else(|_| Err(interrupted()))?;
        Ok(Actor { tasks, open, closing, closed, thread: Mutex::new(Some(thread)) })
    }

    /// Carries out a call. It is seen through also if its caller goes.
    pub async fn call<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&S) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (reply, response) = ReplySender::new();
        self.send(async move |state, _open| {
            let reply = reply.started();
            reply.send(work(state).await);
        });
        response.await.unwrap_or_else(|_| Err(interrupted()))?
    }

    /// The same, for a caller that waits for it without an executor.
    pub fn call_blocking<T: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&S) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let (done, response) = std::sync::mpsc::channel();
        self.send(async move |state, _open| {
            let _ = done.send(work(state).await);
        });
        response.recv().unwrap_or_else(|_| Err(interrupted()))
    }

    /// Carries out a call that may give its caller something to hold. `work` can see that its caller has gone. If the caller goes
    /// before it has taken the response, `undo` gets it, and the caller never does.
    pub async fn call_or_undo<R: Send + 'static>(
        &self,
        work: impl AsyncFnOnce(&S, &PendingCall) -> R + Send + 'static,
        undo: impl AsyncFnOnce(&S, R) + Send + 'static,
    ) -> Result<R, StoreError> {
        let (reply, response) = ReplySender::new();
        // Dropped together with this future.
        let (gone, _here) = mpsc::channel(1);
        let tasks = self.tasks.clone();
        self.send(async move |state, open| {
            let (reply, caller) = (reply.started(), PendingCall { gone, after: Cell::default() });
            let response = work(state, &caller).await;
            let guard =
                ResponseGuard { response: Some((response, undo)), tasks, open: Some(OpenTask::new(&open.0)) };
            // Here and not by dropping it: what has begun is seen through also while the handle is being closed.
            if let Some(Ok(mut guard)) = reply.send(guard)
                && let Some((response, undo)) = guard.response.take()
            {
                undo(state, response).await;
            }
            if let Some(after) = caller.after.take() {
                after.await;
            }
        });
        let mut guard = response.await.unwrap_or_else(|_| Err(interrupted()))?;
        guard.response.take().map(|(response, _)| response).ok_or_else(interrupted)
    }

    /// Has a task begun, unless the handle is closed: then it is dropped, and its caller hears of that by its reply.
    fn send(&self, work: impl AsyncFnOnce(&S, OpenTask) + Send + 'static) {
        if !*self.closing.borrow() {
            let open = OpenTask::new(&self.open);
            let _ = self
                .tasks
                .send(Box::new(move |state| Box::pin(async move { work(&state, open).await })));
        }
    }

    /// Takes no more calls, and waits for those that are under way, but not for ever.
    pub async fn close(&self) {
        self.closing.send_replace(true);
        let mut closed = self.closed.clone();
        while closed.changed().await.is_ok() {}
    }
}

impl<S> Drop for Actor<S> {
    fn drop(&mut self) {
        self.closing.send_replace(true);
        if let Some(thread) = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take() {
            let _ = thread.join();
        }
    }
}

impl<S> fmt::Debug for Actor<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Actor").finish_non_exhaustive()
    }
}

/// Runs every task side by side, until the handle is closed, and then for a while until none is left.
async fn serve<S: Clone + 'static>(
    state: S,
    mut inbox: mpsc::UnboundedReceiver<Task<S>>,
    closing: &Closing,
    mut open: watch::Receiver<usize>,
    close_within: Duration,
) {
    let mut run = async |mut stop: Pin<&mut dyn Future<Output = ()>>| {
        loop {
            tokio::select! {
                () = &mut stop => return,
                Some(task) = inbox.recv() => drop(tokio::task::spawn_local(task(state.clone()))),
            }
        }
    };
    run(pin!(closing.wait())).await;
    let none_left = async {
        let _ = open.wait_for(|open| *open == 0).await;
    };
    let _ = tokio::time::timeout(close_within, run(pin!(none_left))).await;
}

/// How many tasks are not over yet. One is over when it has ended, and its response was taken or undone.
type OpenTasks = Arc<watch::Sender<usize>>;

/// One task that is not over yet.
struct OpenTask(OpenTasks);

impl OpenTask {
    fn new(tasks: &OpenTasks) -> Self {
        tasks.send_modify(|open| *open += 1);
        OpenTask(Arc::clone(tasks))
    }
}

impl Drop for OpenTask {
    fn drop(&mut self) {
        self.0.send_modify(|open| *open -= 1);
    }
}

/// Whether the handle is being closed.
#[derive(Clone, Debug)]
pub struct Closing(watch::Receiver<bool>);

impl Closing {
    /// Returns when the handle is being closed.
    pub async fn wait(&self) {
        let _ = self.0.clone().wait_for(|closing| *closing).await;
    }
}

/// Waits for the response to a call.
pub struct PendingCall {
    gone: mpsc::Sender<Infallible>,
    after: Cell<Option<PendingTask>>,
}

impl PendingCall {
    /// Whether the caller waits no more.
    pub fn has_gone(&self) -> bool {
        self.gone.is_closed()
    }

    /// Returns when the caller waits no more.
    pub async fn gone(&self) {
        self.gone.closed().await;
    }

    /// What is left to do once the caller has its response.
    pub fn after_response(&self, work: impl Future<Output = ()> + 'static) {
        self.after.set(Some(Box::pin(work)));
    }
}

impl fmt::Debug for PendingCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PendingCall")
            .field("has_gone", &self.has_gone())
            .finish_non_exhaustive()
    }
}

/// The way back to a caller, which hears of it too if there is no response.
struct ReplySender<T> {
    sender: Option<oneshot::Sender<Result<T, StoreError>>>,
    started: bool,
}

impl<T> ReplySender<T> {
    fn new() -> (Self, oneshot::Receiver<Result<T, StoreError>>) {
        let (sender, receiver) = oneshot::channel();
        (ReplySender { sender: Some(sender), started: false }, receiver)
    }

    /// From now on something may have been done.
    fn started(mut self) -> Self {
        self.started = true;
        self
    }

    /// Gives the response back if the caller has gone.
    fn send(mut self, response: T) -> Option<Result<T, StoreError>> {
        self.sender.take()?.send(Ok(response)).err()
    }
}

impl<T> Drop for ReplySender<T> {
    fn drop(&mut self) {
        if let Some(sender) = self.sender.take() {
            let error = if self.started { interrupted() } else { closed() };
            let _ = sender.send(Err(error));
        }
    }
}

/// A response on its way to its caller. If it is dropped there before the caller has taken it, it is undone, also where it had
/// arrived and the caller did not look any more.
struct ResponseGuard<S, R, U>
where
    S: Clone + 'static,
    R: Send + 'static,
    U: AsyncFnOnce(&S, R) + Send + 'static,
{
    response: Option<(R, U)>,
    tasks: Tasks<S>,
    open: Option<OpenTask>,
}

impl<S, R, U> Drop for ResponseGuard<S, R, U>
where
    S: Clone + 'static,
    R: Send + 'static,
    U: AsyncFnOnce(&S, R) + Send + 'static,
{
    fn drop(&mut self) {
        if let (Some((response, undo)), Some(open)) = (self.response.take(), self.open.take()) {
            let _ = self.tasks.send(Box::new(move |state| {
                Box::pin(async move {
                    undo(&state, response).await;
                    drop(open);
                })
            }));
        }
    }
}

fn closed() -> StoreError {
    StoreError::Unavailable { message: "this store was closed".to_owned() }
}

fn interrupted() -> StoreError {
    StoreError::OutcomeUnknown { message: "this store was closed before the response came".to_owned() }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::task::{Context, Waker};

    use fencehold_test_store::block_on;

    use super::*;

    /// The state is not to be sent between threads, as that of most stores.
    fn actor() -> Actor<Rc<Sender<u8>>> {
        undone_by(Duration::ZERO).0
    }

    /// With what is undone.
    fn undone_by(close_within: Duration) -> (Actor<Rc<Sender<u8>>>, Receiver<u8>) {
        let (sender, undone) = channel();
        let actor = Actor::start_with("test", close_within, move |_| Ok(Rc::new(sender))).unwrap();
        (actor, undone)
    }

    async fn undo(state: &Rc<Sender<u8>>, response: u8) {
        let _ = state.send(response);
    }

    /// R14: the grant has arrived, and its caller goes without having looked.
    #[test]
    fn a_response_that_arrived_and_was_not_taken_is_undone() {
        let (actor, undone) = undone_by(CLOSE_WITHIN);
        {
            let (go, gate) = oneshot::channel::<()>();
            let work = async move |_: &Rc<Sender<u8>>, _: &PendingCall| {
                let _ = gate.await;
                7
            };
            let mut call = pin!(actor.call_or_undo(work, undo));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            go.send(()).unwrap();
            // Tasks of one thread go on in order: when this is answered, so is the one before it.
            actor.call_blocking(async |_| Ok(())).unwrap();
        }
        // Also if the handle is closed at once.
        block_on(actor.close());
        assert_eq!(undone.try_recv(), Ok(7));
    }

    #[test]
    fn a_response_is_undone_whose_caller_has_gone_before_it() {
        let (actor, undone) = undone_by(CLOSE_WITHIN);
        {
            let work = async |_: &Rc<Sender<u8>>, caller: &PendingCall| {
                caller.gone().await;
                assert!(caller.has_gone());
                7
            };
            let mut call = pin!(actor.call_or_undo(work, undo));
            assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        block_on(actor.close());
        assert_eq!(undone.try_recv(), Ok(7));
    }

    #[test]
    fn a_response_that_was_taken_is_not_undone() {
        let (actor, undone) = undone_by(CLOSE_WITHIN);
        let work = async |_: &Rc<Sender<u8>>, caller: &PendingCall| {
            assert!(!caller.has_gone());
            7
        };
        assert_eq!(block_on(actor.call_or_undo(work, undo)), Ok(7));
        actor.call_blocking(async |_| Ok(())).unwrap();
        assert!(undone.try_recv().is_err());
    }

    #[test]
    fn a_closed_handle_says_that_nothing_was_done() {
        let actor = actor();
        block_on(actor.close());
        let said = block_on(actor.call(async |_| Ok(())));
        assert_eq!(said, Err(closed()));
    }

    /// P7: what had begun may have been done.
    #[test]
    fn a_call_that_closing_interrupts_has_an_unknown_outcome() {
        let actor = actor();
        let (begun, wait) = channel();
        let call = actor.call(async move |_| {
            let _ = begun.send(());
            std::future::pending::<Result<(), StoreError>>().await
        });
        let mut call = pin!(call);
        assert!(call.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        wait.recv().unwrap();
        block_on(actor.close());
        assert_eq!(block_on(call), Err(interrupted()));
    }

    #[test]
    fn the_error_of_opening_is_the_error_of_starting() {
        let error = StoreError::Forbidden { message: "no".to_owned() };
        let said = error.clone();
        let started: Result<Actor<()>, _> = Actor::start("test", |_| Err(said));
        assert_eq!(started.map(drop), Err(error));
    }
}
