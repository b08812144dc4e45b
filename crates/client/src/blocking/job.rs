//! Jobs as blocking handlers have them.

use std::ops::Deref;

use fencehold_core::ledger::InDoubtPolicy;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::job::JobError;
use crate::wake::block_on;

/// One attempt at a job: what a blocking handler works with. See [`crate::Job`], whose other methods it has too.
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

    /// Keeps where a later attempt should go on from. See [`crate::Job::checkpoint`].
    pub fn checkpoint(&self, bytes: impl Into<Vec<u8>>) -> Result<(), Error> {
        block_on(self.inner.checkpoint(bytes))
    }
}

/// What it shares with the job of async handlers: everything that does not wait.
impl Deref for Job {
    type Target = crate::Job;

    fn deref(&self) -> &crate::Job {
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
