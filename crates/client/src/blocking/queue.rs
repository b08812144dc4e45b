//! Queues, jobs and operations, blocking.

use std::fmt;
use std::time::{Duration, SystemTime};

use fencehold_contract::job::{EnqueuedJob, JobCounts, JobDetail, QueueView};
use fencehold_core::Reason;
use fencehold_core::job::{JobId, JobState};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::retry::RetryPolicy;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::queue::EnqueuedBatch;
use crate::typed::{TypedJob, Untyped};
use crate::wake::block_on;

/// A queue of jobs. See [`crate::JobQueue`].
#[derive(Clone, Debug)]
pub struct JobQueue {
    pub(super) inner: crate::JobQueue,
}

impl JobQueue {
    /// A job of this kind with this payload. See [`crate::JobQueue::job`].
    pub fn job(&self, kind: impl AsRef<str>, payload: &(impl Serialize + ?Sized)) -> JobBuilder {
        JobBuilder { inner: self.inner.job(kind, payload) }
    }

    /// A job of the kind that its payload's type is. See [`crate::JobQueue::typed_job`].
    pub fn typed_job<J: TypedJob>(&self, payload: &J) -> JobBuilder<J> {
        JobBuilder { inner: self.inner.typed_job(payload) }
    }

    /// Enqueues many jobs. See [`crate::JobQueue::enqueue_batch`].
    pub fn enqueue_batch<J>(&self, jobs: impl IntoIterator<Item = JobBuilder<J>>) -> EnqueuedBatch {
        block_on(self.inner.enqueue_batch(jobs.into_iter().map(|job| job.inner)))
    }

    blocking_calls! {
        /// Has it hand out no jobs. See [`crate::JobQueue::pause`].
        pause() -> Result<QueueView, Error>;
        /// Has it hand out jobs and take new ones. See [`crate::JobQueue::resume`].
        resume() -> Result<QueueView, Error>;
        /// Has it take no new jobs. See [`crate::JobQueue::drain`].
        drain() -> Result<QueueView, Error>;
        /// How many jobs it has in which state.
        counts() -> Result<JobCounts, Error>;
    }
}

/// A job to be. See [`crate::JobBuilder`].
#[must_use = "nothing is enqueued until `enqueue` is called"]
pub struct JobBuilder<J = Untyped> {
    inner: crate::JobBuilder<J>,
}

impl<J> Clone for JobBuilder<J> {
    fn clone(&self) -> Self {
        JobBuilder { inner: self.inner.clone() }
    }
}

impl<J> fmt::Debug for JobBuilder<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<J> JobBuilder<J> {
    builder_steps! {
        /// Its id. Default: a new one.
        id(id: JobId);
        /// Its rank. Default: 0.
        priority(priority: i16);
        /// Ready only after this time.
        delay(delay: Duration);
        /// Ready only at this moment.
        run_at(at: SystemTime);
        /// How long it waits after a failure.
        retry(retry: RetryPolicy);
        /// After this many failures the job has failed permanently. Default: 10.
        max_failures(failures: u16);
        /// After this many crashes of its worker the job is quarantined. Default: 5.
        max_crashes(crashes: u16);
        /// How long one attempt may take. Default: for ever.
        attempt_timeout(timeout: Duration);
        /// What makes it the same as another. See [`crate::JobBuilder::unique`].
        unique(key: impl AsRef<str>, window: Duration);
        /// Something to find it by.
        label(name: impl Into<Box<str>>, value: impl Into<Box<str>>);
        /// The W3C trace context under which it is enqueued.
        traceparent(traceparent: impl Into<Box<str>>);
        /// Request that a running job of lower priority yield within this time.
        preempt_within(within: Duration);
    }

    /// The same job without its type, to stand beside others in a batch.
    pub fn untyped(self) -> JobBuilder {
        JobBuilder { inner: self.inner.untyped() }
    }
}

impl JobBuilder {
    /// Puts it into its queue.
    pub fn enqueue(self) -> Result<EnqueuedJob, Error> {
        block_on(self.inner.enqueue())
    }
}

impl<J: TypedJob> JobBuilder<J> {
    /// Puts it into its queue.
    pub fn enqueue(self) -> Result<JobHandle<J>, Error> {
        block_on(self.inner.enqueue()).map(|inner| JobHandle { inner })
    }
}

/// A typed job in its queue, and its result to come. See [`crate::JobHandle`].
pub struct JobHandle<J> {
    inner: crate::JobHandle<J>,
}

impl<J> Clone for JobHandle<J> {
    fn clone(&self) -> Self {
        JobHandle { inner: self.inner.clone() }
    }
}

impl<J: TypedJob> fmt::Debug for JobHandle<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<J: TypedJob> JobHandle<J> {
    getters! {
        /// Its id.
        id() -> JobId;
        /// Whether it was there already. See [`crate::JobHandle::existed`].
        existed() -> Option<bool>;
    }

    blocking_calls! {
        /// Blocks until it has finished, and gives its result.
        result(limit: Duration) -> Result<J::Result, Error>;
        /// Everything about it.
        get() -> Result<JobDetail, Error>;
    }
}

/// The jobs of all queues. See [`crate::Jobs`]; [`wait`](super::wait) drives what has no twin here.
#[derive(Clone, Debug)]
pub struct Jobs {
    pub(super) inner: crate::Jobs,
}

impl Jobs {
    /// Everything about one job.
    pub fn get(&self, id: JobId) -> Result<JobDetail, Error> {
        block_on(self.inner.get(id))
    }

    /// Blocks until a job has finished, and gives its result. See [`crate::Jobs::result`].
    pub fn result<T: DeserializeOwned>(&self, id: JobId, limit: Duration) -> Result<T, Error> {
        block_on(self.inner.result(id, limit))
    }

    blocking_calls! {
        /// Cancels a job. See [`crate::Jobs::cancel`].
        cancel(id: JobId, reason: Option<Reason>) -> Result<JobState, Error>;
        /// Starts a job again. See [`crate::Jobs::retry`].
        retry(id: JobId) -> Result<JobState, Error>;
        /// How many jobs there are in which state, all queues together.
        counts() -> Result<JobCounts, Error>;
    }
}

/// The terms on which operations begin. See [`crate::Operations`].
#[derive(Clone, Debug)]
#[must_use = "nothing begins until `once` is called"]
pub struct Operations {
    pub(super) inner: crate::Operations,
}

impl Operations {
    builder_steps! {
        /// How long others get `InProgress` when the caller that carries it out dies. Default: 30 s.
        ttl(ttl: Duration);
        /// For how long a key and its answer are kept. Default: a day.
        idempotency_window(window: Duration);
        /// What to do when an earlier caller died half-way.
        in_doubt_policy(policy: InDoubtPolicy);
    }

    /// Carries out the operation of this key, unless that was done before, and gives its answer. See [`crate::Operations::once`].
    pub fn once<A: Serialize + DeserializeOwned, E>(
        &self,
        idempotency_key: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
        work: impl FnOnce(super::Job) -> Result<A, E>,
    ) -> Result<A, crate::OperationError<E>> {
        block_on(self.inner.once(idempotency_key, payload, async |job| work(job.into())))
    }
}
