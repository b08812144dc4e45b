//! Jobs as blocking handlers have them, and workers for programs without an executor.

use std::time::Duration;

use fencehold_contract::job::CompensatedEffect;
use fencehold_core::job::{JobId, JobKind, QueueName};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::{BadInput, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::LeaseWatch;
use crate::error::{Error, LostCause};
use crate::fence::KeyToken;
use crate::handler::{BlockingJobHandler, BlockingTypedJobHandler};
use crate::job::{JobError, Outcome, StopReason};
use crate::typed::TypedJob;
use crate::wake::block_on;
use crate::watch::YieldRequest;
use crate::worker::{Drained, WorkerEvent, WorkerStats};

/// One attempt at a job: what a blocking handler works with. Clones are of the same attempt. See [`crate::Job`].
///
/// ```
/// use fencehold::JobError;
/// use fencehold::blocking::Job;
///
/// fn resize(job: Job, images: Vec<String>) -> Result<usize, JobError> {
///     for image in &images {
///         if !job.is_live() || job.is_cancelled() {
///             return Err(JobError::new("stopped half-way"));
///         }
///         job.once(image, |_key| Ok(image.len())).run()?; // each image once
///     }
///     Ok(images.len())
/// }
/// # let images = vec!["a.png".to_owned(), "b.png".to_owned()];
/// let run = fencehold::testing::TestJob::new("resize", &images).run_blocking(resize);
/// assert_eq!(run.effects_recorded(), ["a.png", "b.png"]);
/// ```
#[derive(Clone, Debug)]
pub struct Job {
    inner: crate::Job,
}

impl Job {
    /// Has an effect once. See [`crate::Job::once`].
    pub fn once<'a, T, F>(&'a self, name: impl AsRef<str>, effect: F) -> OnceEffect<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        F: FnOnce(String) -> Result<T, JobError> + Send + 'a,
    {
        OnceEffect { inner: self.inner.once(name, calling(effect)) }
    }

    /// Records the intent of an effect, and has it once. See [`crate::Job::once_with_intent`].
    pub fn once_with_intent<'a, T, F>(
        &'a self,
        name: impl AsRef<str>,
        policy: InDoubtPolicy,
        effect: F,
    ) -> OnceEffect<'a, T>
    where
        T: Serialize + DeserializeOwned + Send + 'a,
        F: FnOnce(String) -> Result<T, JobError> + Send + 'a,
    {
        OnceEffect { inner: self.inner.once_with_intent(name, policy, calling(effect)) }
    }

    getters! {
        /// Its id.
        id() -> JobId;
        /// Its queue.
        queue() -> &QueueName;
        /// What it is.
        kind() -> &JobKind;
        /// The fencing token of this attempt. See [`crate::Job::token`].
        token() -> Token;
        /// What this attempt presents at a [fence](crate::fence).
        key_token() -> KeyToken;
        /// Which attempt this is, from 1.
        attempt() -> u32;
        /// How often it has failed so far.
        failure_count() -> u16;
        /// How many workers have died over it so far.
        crash_count() -> u16;
        /// Its labels.
        labels() -> impl Iterator<Item = (&str, &str)>;
        /// The W3C trace context (`traceparent`) under which it was enqueued.
        traceparent() -> Option<&str>;
        /// Where an earlier attempt left off.
        last_checkpoint() -> Option<&[u8]>;
        /// The effect that it compensates, where it is a compensation.
        compensates() -> Option<&CompensatedEffect>;
        /// Whether the claim is this attempt's. Long work looks at this between its steps.
        is_live() -> bool;
        /// When the claim ends at the latest unless it is renewed. See [`crate::Job::deadline_ms`].
        deadline_ms() -> u64;
        /// How long the claim can still be relied on unless it is renewed. See [`crate::Job::remaining`].
        remaining() -> Duration;
        /// Whether the job was cancelled. Learnt with a renewal.
        is_cancelled() -> bool;
        /// The request of another job that this attempt yield, if there is one. Learnt with a renewal.
        yield_request() -> Option<YieldRequest>;
        /// The key under which every attempt at this job has the effect of this name. See [`crate::Job::idempotency_key`].
        idempotency_key(effect: impl AsRef<str>) -> Result<String, BadInput>;
        /// Says how far it has come, for people. See [`crate::Job::progress`].
        progress(note: &(impl Serialize + ?Sized)) -> Result<(), Error>;
        /// Put the job off: give this back from the handler. It counts as nothing.
        snooze(wait: Duration) -> Outcome;
    }

    blocking_calls! {
        /// Keeps where a later attempt should go on from. See [`crate::Job::checkpoint`].
        checkpoint(bytes: impl Into<Vec<u8>>) -> Result<(), Error>;
        /// Blocks until the claim is lost, and says why.
        lost() -> LostCause;
        /// Blocks until the job is cancelled. False: the claim ended first.
        cancelled() -> bool;
        /// Blocks until a job of higher priority requests that this one yield. `None`: the claim ended first.
        yield_requested() -> Option<YieldRequest>;
        /// Blocks until there is a reason to stop. See [`crate::Job::stop_requested`].
        stop_requested() -> StopReason;
        /// Blocks until the worker waits for this handler no longer. See [`crate::Job::drain_timed_out`].
        drain_timed_out() -> ();
    }

    /// Follows the claim from another thread.
    pub fn watch(&self) -> LeaseWatch {
        LeaseWatch { inner: self.inner.watch() }
    }

    /// The same job for async code, such as a [transaction](crate::transaction) of an async driver.
    pub fn as_async(&self) -> &crate::Job {
        &self.inner
    }
}

impl From<crate::Job> for Job {
    fn from(inner: crate::Job) -> Self {
        Job { inner }
    }
}

/// A blocking effect, as a future that is done when it is first looked at.
type Calling<'a, T> = Box<dyn FnOnce(String) -> std::future::Ready<Result<T, JobError>> + Send + 'a>;

fn calling<'a, T>(effect: impl FnOnce(String) -> Result<T, JobError> + Send + 'a) -> Calling<'a, T> {
    Box::new(move |key| std::future::ready(effect(key)))
}

/// An effect that is to happen once. See [`crate::OnceEffect`].
#[derive(Debug)]
#[must_use = "the effect does not happen until `run` is called"]
pub struct OnceEffect<'a, T> {
    inner: crate::OnceEffect<'a, T, Calling<'a, T>>,
}

impl<'a, T: Serialize + DeserializeOwned + Send + 'a> OnceEffect<'a, T> {
    /// The compensation: a job that undoes the effect. See [`crate::OnceEffect::compensate_with`].
    pub fn compensate_with(self, kind: impl AsRef<str>, payload: &(impl Serialize + ?Sized)) -> Self {
        OnceEffect { inner: self.inner.compensate_with(kind, payload) }
    }

    /// Likewise, with a payload made from what the effect gave. See [`crate::OnceEffect::compensate_from`].
    pub fn compensate_from<P: Serialize>(
        self,
        kind: impl AsRef<str>,
        payload: impl FnOnce(&T) -> P + Send + 'a,
    ) -> Self {
        OnceEffect { inner: self.inner.compensate_from(kind, payload) }
    }

    /// The queue of the compensation. Default: this job's queue.
    pub fn compensation_queue(self, queue: impl AsRef<str>) -> Self {
        OnceEffect { inner: self.inner.compensation_queue(queue) }
    }

    /// Has the effect, unless it is recorded already.
    pub fn run(self) -> Result<T, JobError> {
        block_on(self.inner.into_future())
    }
}

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
/// let worker = fh.worker().queue("greetings").handle("greet", greet).start()?;
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
        queue(name: impl AsRef<str>);
        /// A queue with this share of the turns. See [`crate::Worker::weighted_queue`].
        weighted_queue(name: impl AsRef<str>, weight: u32);
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
        /// A value of your program that handlers take as an argument. See [`crate::Worker::state`].
        state(state: impl Clone + Send + Sync + 'static);
    }

    /// Has jobs of this kind run by this handler. It cannot be stopped from outside: long work looks at
    /// [`is_live`](Job::is_live) between its steps. See [`crate::Worker::handle_blocking`].
    pub fn handle<A, H>(self, kind: impl AsRef<str>, handler: H) -> Self
    where
        H: BlockingJobHandler<A> + Send + Sync + 'static,
    {
        Worker { inner: self.inner.handle_blocking(kind, handler) }
    }

    /// Has jobs of every kind that has no handler of its own run by this handler.
    pub fn handle_any<A, H>(self, handler: H) -> Self
    where
        H: BlockingJobHandler<A> + Send + Sync + 'static,
    {
        Worker { inner: self.inner.handle_any_blocking(handler) }
    }

    /// Has jobs of a [type](crate::TypedJob) run by this handler. See [`crate::Worker::handle_typed`].
    pub fn handle_typed<J: TypedJob, A, H>(self, handler: H) -> Self
    where
        H: BlockingTypedJobHandler<J, A> + Send + Sync + 'static,
    {
        Worker { inner: self.inner.handle_typed_blocking(handler) }
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
    getters! {
        /// What it does at this moment, and what it has done since it started.
        stats() -> WorkerStats;
    }

    /// Ends in good order, and blocks until it has. See [`crate::RunningWorker::drain`].
    pub fn drain(self) -> Result<Drained, Error> {
        block_on(self.inner.drain())
    }
}
