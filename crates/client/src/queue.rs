//! Queues, and putting jobs into them.

use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU32;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fencehold_contract::job::{
    EnqueuedJob, JobCounts, NewJob, QueueMode, QueueView, SetQueueModeRequest, Unique, When,
};
use fencehold_core::BadInput;
use fencehold_core::job::{JobId, JobKind, QueueName, UniqueKey};
use fencehold_core::limits::{CALL_BYTES_MAX, JOBS_PER_CALL_MAX};
use fencehold_core::retry::RetryPolicy;
use serde::Serialize;

use crate::connect::Fencehold;
use crate::error::Error;
use crate::json;
use crate::metrics;
use crate::random::job_id;
use crate::retry::only;
use crate::time::ms;
use crate::typed::Untyped;

/// What a job weighs in a call beside its payload: ids, names, labels.
const JOB_BYTES: usize = 1_024;

impl Fencehold {
    /// A queue of jobs.
    ///
    /// ```
    /// # async fn example(fh: fencehold::Fencehold) -> Result<(), fencehold::Error> {
    /// use std::time::Duration;
    ///
    /// let emails = fh.queue("emails");
    /// let sent = emails.job("send", &"anna@example.org").priority(5).max_failures(3).enqueue().await?;
    /// let receipt: String = fh.jobs().result(sent.job_id, Duration::from_secs(60)).await?;
    /// # let _ = receipt;
    /// # Ok(())
    /// # }
    /// ```
    pub fn queue(&self, name: impl AsRef<str>) -> JobQueue {
        JobQueue { fencehold: self.clone(), queue: QueueName::new(name.as_ref()) }
    }
}

impl Fencehold {
    /// A new id for a job, so that it can be enqueued again and stays one job.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), fencehold::Error> {
    /// # let fh = fencehold::Fencehold::connect("memory:").await?;
    /// let job = fh.queue("emails").job("send", "anna@example.org").id(fh.new_job_id()?);
    /// let first = job.clone().enqueue().await?;
    /// let again = job.enqueue().await?; // after `Error::OutcomeUnknown`, say
    /// assert!(again.existed && again.job_id == first.job_id);
    /// # Ok(())
    /// # }
    /// ```
    pub fn new_job_id(&self) -> Result<JobId, Error> {
        job_id(self.clock().now().wall_ms)
    }
}

/// A queue of jobs.
#[derive(Clone, Debug)]
pub struct JobQueue {
    fencehold: Fencehold,
    queue: Result<QueueName, BadInput>,
}

impl JobQueue {
    /// A job of this kind with this payload. Nothing happens until it is [enqueued](JobBuilder::enqueue).
    pub fn job(&self, kind: impl AsRef<str>, payload: &(impl Serialize + ?Sized)) -> JobBuilder {
        let made = || {
            let kind = JobKind::new(kind.as_ref())?;
            let payload = json::written("payload", payload)?;
            // The id is made when the job is enqueued, unless the caller gives one.
            Ok(NewJob::new(JobId::from_bytes([0; 16]), self.queue.clone()?, kind, payload))
        };
        JobBuilder { fencehold: self.fencehold.clone(), job: made(), id: None, kind: PhantomData }
    }

    /// Enqueues many jobs, in as few calls as they fit into. One result for each, in order: a bad one does not keep the
    /// good ones out. If a call fails, its jobs have its error, and so do the jobs after them, which are not sent.
    ///
    /// ```
    /// # async fn example(fh: fencehold::Fencehold) -> Result<(), fencehold::Error> {
    /// let emails = fh.queue("emails");
    /// let jobs = ["anna@example.org", "ben@example.org"].map(|to| emails.job("send", to));
    /// let enqueued = emails.enqueue_batch(jobs).await.all()?; // or each with its own error: `for job in …`
    /// assert_eq!(enqueued.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub async fn enqueue_batch<J>(&self, jobs: impl IntoIterator<Item = JobBuilder<J>>) -> EnqueuedBatch {
        let mut results = Vec::new();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut failed: Option<Error> = None;
        // All of them before the first call: an iterator of borrowed things is not held across it.
        let jobs: Vec<_> = jobs.into_iter().map(JobBuilder::finish).collect();
        for job in jobs {
            let job = match job {
                Ok(job) => job,
                Err(error) => {
                    results.push(Err(error));
                    continue;
                }
            };
            if let Some(error) = &failed {
                results.push(Err(error.clone()));
                continue;
            }
            let weight = job.payload.len() + JOB_BYTES;
            if batch.len() == JOBS_PER_CALL_MAX || bytes + weight > CALL_BYTES_MAX {
                failed = self.send(std::mem::take(&mut batch), &mut results).await.err();
                bytes = 0;
            }
            bytes += weight;
            batch.push((results.len(), job));
            let unanswered = "the store left a job unanswered".to_owned();
            results.push(Err(Error::OutcomeUnknown { message: unanswered }));
        }
        match failed {
            None => drop(self.send(batch, &mut results).await),
            // The job on which the last call was full.
            Some(error) => {
                for (place, _) in batch {
                    results[place] = Err(error.clone());
                }
            }
        }
        EnqueuedBatch { results }
    }

    pub(crate) fn fencehold(&self) -> &Fencehold {
        &self.fencehold
    }

    /// Enqueues jobs in one call, and puts each result into its place.
    async fn send(
        &self,
        batch: Vec<(usize, NewJob)>,
        results: &mut [Result<EnqueuedJob, Error>],
    ) -> Result<(), Error> {
        if batch.is_empty() {
            return Ok(());
        }
        let (places, jobs): (Vec<usize>, Vec<NewJob>) = batch.into_iter().unzip();
        let answers = match self.fencehold.ask(|store, call| store.enqueue(call, jobs.clone())).await {
            Ok(answers) => answers,
            Err(error) => {
                for place in places {
                    results[place] = Err(error.clone());
                }
                return Err(error);
            }
        };
        for ((place, job), answer) in places.into_iter().zip(&jobs).zip(answers) {
            metrics::jobs_enqueued(u64::from(answer.as_ref().is_ok_and(|enqueued| !enqueued.existed)));
            results[place] = answer.map_err(|refusal| Error::job_refused(job.id, refusal));
        }
        Ok(())
    }

    /// Has it hand out no jobs until it is [resumed](JobQueue::resume). What runs goes on.
    pub async fn pause(&self) -> Result<QueueView, Error> {
        self.set(QueueMode::Paused).await
    }

    /// Has it hand out jobs and take new ones.
    pub async fn resume(&self) -> Result<QueueView, Error> {
        self.set(QueueMode::Open).await
    }

    /// Has it take no new jobs, and hand out those that it has.
    pub async fn drain(&self) -> Result<QueueView, Error> {
        self.set(QueueMode::Draining).await
    }

    /// Deletes it. One that has jobs, finished ones included, or schedules is not deleted: [`Error::QueueNotEmpty`]. False:
    /// there was none. A queue that is empty, open and unused vanishes by itself.
    pub async fn delete(&self) -> Result<bool, Error> {
        let (queue, by) = (self.queue.clone()?, self.fencehold.owner());
        let deleted = self
            .fencehold
            .ask(|jobs, call| jobs.delete_queue(call, queue.clone(), by.clone()));
        deleted.await
    }

    /// What it does, how many jobs it has in which state, and how many claims wait for more. `None`: it has never had a job, or
    /// none for so long that it has vanished.
    pub async fn view(&self) -> Result<Option<QueueView>, Error> {
        let queue = self.queue.clone()?;
        let views = self.fencehold.jobs().queues().await?;
        Ok(views.into_iter().find(|view| view.name == queue))
    }

    /// How many jobs it has in which state.
    pub async fn counts(&self) -> Result<JobCounts, Error> {
        Ok(self.view().await?.map(|view| view.job_counts).unwrap_or_default())
    }

    async fn set(&self, mode: QueueMode) -> Result<QueueView, Error> {
        let (queue, by) = (self.queue.clone()?, self.fencehold.owner().clone());
        let request = SetQueueModeRequest { queue, mode, by };
        let set = self.fencehold.ask(|jobs, call| jobs.set_queue_mode(call, request.clone()));
        set.await
    }
}

/// What became of the jobs of a [batch](JobQueue::enqueue_batch): one result for each, in their order.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "it alone says which jobs were not enqueued"]
pub struct EnqueuedBatch {
    results: Vec<Result<EnqueuedJob, Error>>,
}

impl EnqueuedBatch {
    /// One result for each job.
    pub fn results(&self) -> &[Result<EnqueuedJob, Error>] {
        &self.results
    }

    /// All of the jobs, or the first error. The jobs that have none are enqueued all the same.
    pub fn all(self) -> Result<Vec<EnqueuedJob>, Error> {
        self.results.into_iter().collect()
    }
}

impl IntoIterator for EnqueuedBatch {
    type Item = Result<EnqueuedJob, Error>;
    type IntoIter = std::vec::IntoIter<Result<EnqueuedJob, Error>>;

    fn into_iter(self) -> Self::IntoIter {
        self.results.into_iter()
    }
}

/// A job to be, and the terms on which it is tried. Nothing happens until [`enqueue`](JobBuilder::enqueue) is awaited;
/// that is also where a name or a time that is out of bounds is refused.
#[must_use = "nothing is enqueued until `enqueue` is awaited"]
pub struct JobBuilder<J = Untyped> {
    fencehold: Fencehold,
    job: Result<NewJob, BadInput>,
    id: Option<JobId>,
    kind: PhantomData<fn() -> J>,
}

impl JobBuilder {
    /// Puts it into its queue. To send it again after [`Error::OutcomeUnknown`], give it an [`id`](JobBuilder::id) or a
    /// [`unique`](JobBuilder::unique) key first: without one, each call makes another job.
    pub async fn enqueue(self) -> Result<EnqueuedJob, Error> {
        self.send().await
    }

    pub(crate) fn into_typed<J>(self) -> JobBuilder<J> {
        let JobBuilder { fencehold, job, id, kind: _ } = self;
        JobBuilder { fencehold, job, id, kind: PhantomData }
    }
}

impl<J> JobBuilder<J> {
    /// Its id, such as [`Fencehold::new_job_id`] makes. The same id makes one job, however often it is enqueued. Default: a new
    /// one.
    pub fn id(self, id: JobId) -> Self {
        JobBuilder { id: Some(id), ..self }
    }

    /// Its rank: higher is claimed first. Default: 0.
    pub fn priority(self, priority: i16) -> Self {
        self.set(|job| job.options.priority = priority)
    }

    /// Ready only after this time, by the store's clock. Default: at once.
    pub fn delay(self, delay: Duration) -> Self {
        self.set(|job| job.when = When::After { delay_ms: ms(delay) })
    }

    /// Ready only at this moment, in wall time. Default: at once.
    pub fn run_at(self, at: SystemTime) -> Self {
        let since = at.duration_since(UNIX_EPOCH);
        let since = since.map_err(|_| BadInput::new("run_at", "is before 1970"));
        self.try_set(|job| since.map(|since| job.when = When::At { wall_ms: ms(since) }))
    }

    /// How long it waits after a failure. Default: exponentially from a second to an hour.
    pub fn retry(self, retry: RetryPolicy) -> Self {
        self.set(|job| job.options.retry = retry)
    }

    /// After this many failures the job has failed permanently. Default: 10.
    pub fn max_failures(self, failures: u16) -> Self {
        self.set(|job| job.options.max_failures = failures)
    }

    /// After this many crashes of its worker the job is quarantined. Default: 5.
    pub fn max_crashes(self, crashes: u16) -> Self {
        self.set(|job| job.options.max_crashes = crashes)
    }

    /// How long one attempt may take; beyond that it is a failure. Default: for ever.
    ///
    /// The store ends the attempt at the limit. Its handler is stopped before that, so that it is gone when another worker
    /// may begin: a tenth of the limit before, or a tenth of the worker's ttl where that is less.
    pub fn attempt_timeout(self, timeout: Duration) -> Self {
        let timeout_ms = NonZeroU32::new(u32::try_from(ms(timeout)).unwrap_or(u32::MAX));
        let none = || BadInput::new("attempt_timeout_ms", "is 0; leave it out for no limit");
        self.try_set(|job| timeout_ms.ok_or_else(none).map(|ms| job.options.attempt_timeout_ms = Some(ms)))
    }

    /// What makes it the same as another: within this time after the first, and in any case until the first has come to
    /// its end, the same key gives the first job's id. The same key with another payload is [`Error::Conflict`].
    pub fn unique(self, key: impl AsRef<str>, window: Duration) -> Self {
        let unique = UniqueKey::new(key.as_ref()).map(|key| Unique { key, window_ms: ms(window) });
        self.try_set(|job| unique.map(|unique| job.unique = Some(unique)))
    }

    /// Something to find it by.
    pub fn label(self, name: impl Into<Box<str>>, value: impl Into<Box<str>>) -> Self {
        self.set(|job| job.labels.push((name.into(), value.into())))
    }

    /// The W3C trace context (`traceparent`) under which it is enqueued. Its handler finds it in
    /// [`Job::traceparent`](crate::Job::traceparent).
    pub fn traceparent(self, traceparent: impl Into<Box<str>>) -> Self {
        let traceparent = crate::trace::checked(traceparent.into());
        self.try_set(|job| traceparent.map(|traceparent| job.traceparent = Some(traceparent)))
    }

    /// While it waits, requests that a running job of lower priority in its queue yield within this time.
    pub fn preempt_within(self, within: Duration) -> Self {
        self.set(|job| job.preempt_within_ms = Some(ms(within)))
    }

    pub(crate) async fn send(self) -> Result<EnqueuedJob, Error> {
        let fencehold = self.fencehold.clone();
        let job = self.finish()?;
        let id = job.id;
        let answers = fencehold.ask(|jobs, call| jobs.enqueue(call, vec![job.clone()]));
        let enqueued = only(answers.await?)?.map_err(|refusal| Error::job_refused(id, refusal))?;
        metrics::jobs_enqueued(u64::from(!enqueued.existed));
        Ok(enqueued)
    }

    /// The same job without its type, to stand beside others in a batch.
    pub fn untyped(self) -> JobBuilder {
        let JobBuilder { fencehold, job, id, kind: _ } = self;
        JobBuilder { fencehold, job, id, kind: PhantomData }
    }

    pub(crate) fn fencehold(&self) -> &Fencehold {
        &self.fencehold
    }

    pub(crate) fn finish(self) -> Result<NewJob, Error> {
        let mut job = self.job?;
        job.options.check()?;
        job.id = match self.id {
            Some(id) => id,
            None => self.fencehold.new_job_id()?,
        };
        Ok(job)
    }

    gathered!(job: NewJob);
}

impl<J> Clone for JobBuilder<J> {
    fn clone(&self) -> Self {
        JobBuilder {
            fencehold: self.fencehold.clone(),
            job: self.job.clone(),
            id: self.id,
            kind: PhantomData,
        }
    }
}

impl<J> fmt::Debug for JobBuilder<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobBuilder")
            .field("job", &self.job)
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
