//! Workers, for programs without an executor.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::Job;
use crate::error::Error;
use crate::job::{IntoOutcome, JobError};
use crate::wake::block_on;
use crate::worker::{Drained, WorkerEvent};

/// Takes jobs out of queues and has blocking handlers run them, each on a thread of its own. See [`crate::Worker`].
///
/// ```
/// use std::time::Duration;
/// use fencehold::JobError;
/// use fencehold::blocking::{Fencehold, Job};
///
/// fn greet(_job: Job, name: String) -> Result<String, JobError> {
///     Ok(format!("Hello {name}"))
/// }
///
/// # fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("memory:")?;
/// let job = fh.queue("greetings").job("greet", "Ada").enqueue()?.job_id;
/// let worker = fh.worker().queue("greetings", 1).handle("greet", greet).start()?;
/// let greeting: String = fh.jobs().result(job, Duration::from_secs(20))?;
/// assert_eq!(greeting, "Hello Ada");
/// assert_eq!(worker.drain()?.finished, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[must_use = "nothing happens until `run` or `start` is called"]
pub struct Worker {
    inner: crate::Worker,
}

impl Worker {
    pub(super) fn new(inner: crate::Worker) -> Self {
        Worker { inner }
    }

    /// A queue to take jobs from. See [`crate::Worker::queue`].
    pub fn queue(self, name: impl AsRef<str>, weight: u32) -> Self {
        Worker { inner: self.inner.queue(name, weight) }
    }

    /// How many jobs run at once. Default: 8.
    pub fn concurrency(self, concurrency: usize) -> Self {
        Worker { inner: self.inner.concurrency(concurrency) }
    }

    /// At most how many jobs are claimed ahead. See [`crate::Worker::prefetch`].
    pub fn prefetch(self, most: usize) -> Self {
        Worker { inner: self.inner.prefetch(most) }
    }

    /// How long a claim or a renewal lasts. Default: 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        Worker { inner: self.inner.ttl(ttl) }
    }

    /// Who works. Default: the handle's owner.
    pub fn owner(self, owner: impl AsRef<str>) -> Self {
        Worker { inner: self.inner.owner(owner) }
    }

    /// How long running jobs have to end when the worker drains. Default: 25 s.
    pub fn drain_timeout(self, limit: Duration) -> Self {
        Worker { inner: self.inner.drain_timeout(limit) }
    }

    /// Has jobs of this kind run by this handler. It cannot be stopped from outside: long work looks at
    /// [`is_live`](crate::Job::is_live) between its steps. See [`crate::Worker::handle_blocking`].
    pub fn handle<P, R, F>(self, kind: impl AsRef<str>, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: IntoOutcome + 'static,
        F: Fn(Job, P) -> Result<R, JobError> + Send + Sync + 'static,
    {
        Worker { inner: self.inner.handle_blocking(kind, handler) }
    }

    /// Has jobs of every kind that has no handler of its own run by this handler.
    pub fn handle_any<P, R, F>(self, handler: F) -> Self
    where
        P: DeserializeOwned + Send + 'static,
        R: IntoOutcome + 'static,
        F: Fn(Job, P) -> Result<R, JobError> + Send + Sync + 'static,
    {
        Worker { inner: self.inner.handle_any_blocking(handler) }
    }

    /// How long the worker waits for handlers once the drain timeout is over. See [`crate::Worker::stop_timeout`].
    pub fn stop_timeout(self, limit: Duration) -> Self {
        Worker { inner: self.inner.stop_timeout(limit) }
    }

    /// Works until no job is ready and none runs. See [`crate::Worker::until_empty`].
    pub fn until_empty(self) -> Self {
        Worker { inner: self.inner.until_empty() }
    }

    /// Calls this for what happens to the worker. See [`crate::Worker::on_event`].
    pub fn on_event(self, hook: impl Fn(&WorkerEvent<'_>) + Send + Sync + 'static) -> Self {
        Worker { inner: self.inner.on_event(hook) }
    }

    /// Works until this process is sent SIGTERM or SIGINT, and then ends in good order. See [`crate::Worker::run`].
    pub fn run(self) -> Result<Drained, Error> {
        block_on(self.inner.run())
    }

    /// Begins to work, on threads of its own, and returns.
    pub fn start(self) -> Result<RunningWorker, Error> {
        Ok(RunningWorker { inner: self.inner.start()? })
    }
}

/// A worker at work. Dropped, it stops at once. See [`crate::RunningWorker`].
#[derive(Debug)]
#[must_use = "a worker stops as soon as this is dropped"]
pub struct RunningWorker {
    inner: crate::RunningWorker,
}

impl RunningWorker {
    /// Ends in good order, and blocks until it has. See [`crate::RunningWorker::drain`].
    pub fn drain(self) -> Result<Drained, Error> {
        block_on(self.inner.drain())
    }
}
