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
    pub(super) inner: crate::Worker,
}

impl Worker {
    builder_steps! {
        /// A queue to take jobs from. See [`crate::Worker::queue`].
        queue(name: impl AsRef<str>, weight: u32);
        /// How many jobs run at once. Default: 8.
        concurrency(concurrency: usize);
        /// At most how many jobs are claimed ahead. See [`crate::Worker::prefetch`].
        prefetch(most: usize);
        /// How long a claim or a renewal lasts. Default: 30 s.
        ttl(ttl: Duration);
        /// Who works. Default: the handle's owner.
        owner(owner: impl AsRef<str>);
        /// How long running jobs have to end when the worker drains. Default: 25 s.
        drain_timeout(limit: Duration);
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

    builder_steps! {
        /// How long the worker waits for handlers once the drain timeout is over. See [`crate::Worker::stop_timeout`].
        stop_timeout(limit: Duration);
        /// Works until no job is ready and none runs. See [`crate::Worker::until_empty`].
        until_empty();
        /// Calls this for what happens to the worker. See [`crate::Worker::on_event`].
        on_event(hook: impl Fn(&WorkerEvent<'_>) + Send + Sync + 'static);
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
