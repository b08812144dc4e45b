//! Queues, jobs and operations, blocking.

use std::time::{Duration, SystemTime};

use fencehold_contract::job::{EnqueuedJob, JobCounts, JobDetail, QueueView};
use fencehold_core::Reason;
use fencehold_core::job::{JobId, JobState};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::retry::RetryPolicy;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::wake::block_on;

/// A queue of jobs. See [`crate::JobQueue`].
#[derive(Clone, Debug)]
pub struct JobQueue {
    inner: crate::JobQueue,
}

impl JobQueue {
    pub(super) fn new(inner: crate::JobQueue) -> Self {
        JobQueue { inner }
    }

    /// A job of this kind with this payload. See [`crate::JobQueue::job`].
    pub fn job(&self, kind: impl AsRef<str>, payload: &(impl Serialize + ?Sized)) -> JobBuilder {
        JobBuilder { inner: self.inner.job(kind, payload) }
    }

    /// Enqueues many jobs. See [`crate::JobQueue::enqueue_batch`].
    pub fn enqueue_batch(
        &self,
        jobs: impl IntoIterator<Item = JobBuilder>,
    ) -> Result<Vec<Result<EnqueuedJob, Error>>, Error> {
        block_on(self.inner.enqueue_batch(jobs.into_iter().map(|job| job.inner)))
    }

    /// Has it hand out no jobs. See [`crate::JobQueue::pause`].
    pub fn pause(&self) -> Result<QueueView, Error> {
        block_on(self.inner.pause())
    }

    /// Has it hand out jobs and take new ones. See [`crate::JobQueue::resume`].
    pub fn resume(&self) -> Result<QueueView, Error> {
        block_on(self.inner.resume())
    }

    /// Has it take no new jobs. See [`crate::JobQueue::drain`].
    pub fn drain(&self) -> Result<QueueView, Error> {
        block_on(self.inner.drain())
    }

    /// How many jobs it has in which state.
    pub fn counts(&self) -> Result<JobCounts, Error> {
        block_on(self.inner.counts())
    }
}

/// A job to be. See [`crate::JobBuilder`].
#[derive(Clone, Debug)]
#[must_use = "nothing is enqueued until `enqueue` is called"]
pub struct JobBuilder {
    inner: crate::JobBuilder,
}

/// The same terms, passed on.
macro_rules! terms {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            $(#[$doc])*
            pub fn $name(self, $($argument: $type),*) -> Self {
                JobBuilder { inner: self.inner.$name($($argument),*) }
            }
        )*
    };
}

impl JobBuilder {
    terms! {
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

    /// Puts it into its queue.
    pub fn enqueue(self) -> Result<EnqueuedJob, Error> {
        block_on(self.inner.enqueue())
    }
}

/// The jobs of all queues. See [`crate::Jobs`]; [`wait`](super::Fencehold::wait) drives what has no twin here.
#[derive(Clone, Debug)]
pub struct Jobs {
    inner: crate::Jobs,
}

impl Jobs {
    pub(super) fn new(inner: crate::Jobs) -> Self {
        Jobs { inner }
    }

    /// Everything about one job.
    pub fn get(&self, id: JobId) -> Result<JobDetail, Error> {
        block_on(self.inner.get(id))
    }

    /// Blocks until a job has finished, and gives its result. See [`crate::Jobs::result`].
    pub fn result<T: DeserializeOwned>(&self, id: JobId, limit: Duration) -> Result<T, Error> {
        block_on(self.inner.result(id, limit))
    }

    /// Cancels a job. See [`crate::Jobs::cancel`].
    pub fn cancel(&self, id: JobId, reason: Option<Reason>) -> Result<JobState, Error> {
        block_on(self.inner.cancel(id, reason))
    }

    /// Starts a job again. See [`crate::Jobs::retry`].
    pub fn retry(&self, id: JobId) -> Result<JobState, Error> {
        block_on(self.inner.retry(id))
    }

    /// How many jobs there are in which state, all queues together.
    pub fn counts(&self) -> Result<JobCounts, Error> {
        block_on(self.inner.counts())
    }
}

/// The terms on which operations begin. See [`crate::Operations`].
#[derive(Clone, Debug)]
pub struct Operations {
    inner: crate::Operations,
}

impl Operations {
    pub(super) fn new(inner: crate::Operations) -> Self {
        Operations { inner }
    }

    /// How long others get `InProgress` when the caller that carries it out dies. Default: 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        Operations { inner: self.inner.ttl(ttl) }
    }

    /// For how long a key and its answer are kept. Default: a day.
    pub fn idempotency_window(self, window: Duration) -> Self {
        Operations { inner: self.inner.idempotency_window(window) }
    }

    /// What to do when an earlier caller died half-way.
    pub fn in_doubt_policy(self, policy: InDoubtPolicy) -> Self {
        Operations { inner: self.inner.in_doubt_policy(policy) }
    }

    /// Begins the operation of this key, or says what has become of it. [`wait`](super::Fencehold::wait) drives the
    /// guard's own futures. See [`crate::Operations::begin`].
    pub fn begin<A: DeserializeOwned>(
        &self,
        idempotency_key: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<crate::OperationStatus<A>, Error> {
        block_on(self.inner.begin(idempotency_key, payload))
    }
}
