//! Jobs whose kind is a type: what enqueues them, what runs them and what waits for them agree when the program is compiled.
//!
//! Deliberately absent: a form of its own in the store. A typed job is a job of its kind, and untyped code can enqueue, run
//! and read it.

use std::fmt;
use std::marker::PhantomData;
use std::time::Duration;

use fencehold_contract::job::{EnqueuedJob, JobDetail};
use fencehold_core::job::JobId;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::handler::{Async, Blocking, BlockingJobHandler, FromJob, JobHandler, State};
use crate::job::{Job, Outcome};
use crate::jobs::Jobs;
use crate::queue::{JobBuilder, JobQueue};
use crate::transaction::PostgresTransaction;
use crate::{Worker, blocking};

/// A kind of job: the payload is a value of this type, and its result is a value of another.
///
/// ```
/// use std::time::Duration;
/// use fencehold::{Fencehold, JobBuilder, JobError, TypedJob};
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Resize { width: u32 }
///
/// impl TypedJob for Resize {
///     const KIND: &'static str = "resize";
///     type Result = String;
///
///     fn options(job: JobBuilder<Self>) -> JobBuilder<Self> {
///         job.max_failures(3).attempt_timeout(Duration::from_secs(60))
///     }
/// }
///
/// async fn resize(job: Resize) -> Result<String, JobError> {
///     Ok(format!("{} wide", job.width))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), fencehold::Error> {
/// let fh = Fencehold::connect("memory:").await?;
/// let job = fh.queue("images").typed_job(&Resize { width: 80 }).priority(5).enqueue().await?;
/// fh.worker().queue("images").handle_typed(resize).until_empty().run().await?;
/// assert_eq!(job.result(Duration::from_secs(20)).await?, "80 wide"); // a String: nothing else compiles
/// # Ok(())
/// # }
/// ```
///
/// A handler of another payload does not compile:
///
/// ```compile_fail,E0277
/// # use fencehold::{Fencehold, JobError, TypedJob};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Resize { width: u32 }
/// # impl TypedJob for Resize {
/// #     const KIND: &'static str = "resize";
/// #     type Result = String;
/// # }
/// async fn resize(width: u32) -> Result<String, JobError> {
///     Ok(format!("{width} wide"))
/// }
/// # fn example(fh: Fencehold) {
/// let worker = fh.worker().queue("images").handle_typed::<Resize, _, _>(resize);
/// # }
/// ```
///
/// A handler with another result type does not compile, nor does code that waits for another type:
///
/// ```compile_fail,E0277
/// # use fencehold::{Fencehold, JobError, TypedJob};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Resize { width: u32 }
/// # impl TypedJob for Resize {
/// #     const KIND: &'static str = "resize";
/// #     type Result = String;
/// # }
/// async fn resize(job: Resize) -> Result<u32, JobError> {
///     Ok(job.width)
/// }
/// # fn example(fh: Fencehold) {
/// let worker = fh.worker().queue("images").handle_typed(resize);
/// # }
/// ```
///
/// ```compile_fail,E0308
/// # use std::time::Duration;
/// # use fencehold::{Fencehold, TypedJob};
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Resize { width: u32 }
/// # impl TypedJob for Resize {
/// #     const KIND: &'static str = "resize";
/// #     type Result = String;
/// # }
/// # async fn example(fh: Fencehold) -> Result<(), fencehold::Error> {
/// let job = fh.queue("images").typed_job(&Resize { width: 80 }).enqueue().await?;
/// let width: u32 = job.result(Duration::from_secs(20)).await?;
/// # Ok(())
/// # }
/// ```
pub trait TypedJob: Serialize + DeserializeOwned {
    /// The name of the kind.
    const KIND: &'static str;
    /// What a completed job of this kind has as its result.
    type Result: Serialize + DeserializeOwned;

    /// The options of jobs that are made by [`JobQueue::typed_job`]. One that is set on a single job afterwards replaces it; labels are
    /// added. Jobs of schedules and compensations have options of their own.
    fn options(job: JobBuilder<Self>) -> JobBuilder<Self> {
        job
    }
}

/// The type of jobs that are no [`TypedJob`].
#[derive(Clone, Copy, Debug)]
pub enum Untyped {}

impl JobQueue {
    /// A job of the kind that its payload's type is. Nothing happens until it is [enqueued](JobBuilder::enqueue).
    pub fn typed_job<J: TypedJob>(&self, payload: &J) -> JobBuilder<J> {
        J::options(self.job(J::KIND, payload).into_typed())
    }
}

impl<J: TypedJob> JobBuilder<J> {
    /// Puts it into its queue.
    pub async fn enqueue(self) -> Result<JobHandle<J>, Error> {
        let fencehold = self.fencehold().clone();
        let EnqueuedJob { job_id, existed } = self.send().await?;
        Ok(JobHandle { jobs: fencehold.jobs(), job_id, existed: Some(existed), kind: PhantomData })
    }

    /// Puts it into its queue with the caller's [transaction](crate::transaction): once that commits, the job is there; if it is rolled back,
    /// it never was. Its result can be waited for after the commit.
    pub async fn enqueue_in<T: PostgresTransaction + ?Sized>(
        self,
        transaction: &mut T,
    ) -> Result<JobHandle<J>, Error> {
        let fencehold = self.fencehold().clone();
        let EnqueuedJob { job_id, existed } = self.send_in(transaction).await?;
        Ok(JobHandle { jobs: fencehold.jobs(), job_id, existed: Some(existed), kind: PhantomData })
    }
}

impl Jobs {
    /// A job of this type, by its id. Nothing is asked of the store yet.
    pub fn typed<J: TypedJob>(&self, job_id: JobId) -> JobHandle<J> {
        JobHandle { jobs: self.clone(), job_id, existed: None, kind: PhantomData }
    }
}

/// A typed job in its queue, and its result to come.
pub struct JobHandle<J> {
    jobs: Jobs,
    job_id: JobId,
    existed: Option<bool>,
    kind: PhantomData<fn() -> J>,
}

impl<J: TypedJob> JobHandle<J> {
    /// Its id. If its unique key matched an earlier job, that job's id.
    pub fn id(&self) -> JobId {
        self.job_id
    }

    /// Whether it was there already when it was enqueued, by its id or its unique key. `None`: this handle was made from an id.
    pub fn existed(&self) -> Option<bool> {
        self.existed
    }

    /// Waits until it has finished, and gives its result. See [`Jobs::result`].
    pub async fn result(&self, limit: Duration) -> Result<J::Result, Error> {
        self.jobs.result(self.job_id, limit).await
    }

    /// Everything about it.
    pub async fn get(&self) -> Result<JobDetail, Error> {
        self.jobs.get(self.job_id).await
    }
}

impl<J> Clone for JobHandle<J> {
    fn clone(&self) -> Self {
        JobHandle { jobs: self.jobs.clone(), kind: PhantomData, ..*self }
    }
}

impl<J: TypedJob> fmt::Debug for JobHandle<J> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobHandle")
            .field("kind", &J::KIND)
            .field("job_id", &self.job_id)
            .field("existed", &self.existed)
            .finish_non_exhaustive()
    }
}

/// What a handler of a typed job can take as an argument: the job, a [`State`], or the payload as its own type.
#[diagnostic::on_unimplemented(
    message = "a handler of `{J}` cannot take `{Self}` as an argument",
    note = "it takes the job, its payload as `{J}`, and `State`s"
)]
pub trait FromTypedJob<J, Mode>: FromJob<Mode> {}

impl<J> FromTypedJob<J, Async> for Job {}
impl<J> FromTypedJob<J, Blocking> for blocking::Job {}
impl<J, T: Clone + Send + Sync + 'static, Mode> FromTypedJob<J, Mode> for State<T> {}
impl<J: TypedJob, Mode> FromTypedJob<J, Mode> for J {}

/// What a handler of a typed job can return: a `Result` of the kind's own result, or nothing where that is `()`. An [`Outcome`] is
/// possible too, for a handler that may put its job off; whether its result fits is then not checked.
#[diagnostic::on_unimplemented(
    message = "a handler of `{J}` cannot return `{Self}`",
    note = "it returns `Result<{J}::Result, E>`, or an `Outcome`"
)]
pub trait TypedResult<J> {}

impl<J: TypedJob<Result = ()>> TypedResult<J> for () {}
impl<J> TypedResult<J> for Outcome {}
impl<J, E> TypedResult<J> for Result<Outcome, E> {}
impl<J: TypedJob<Result = R>, R: Serialize, E> TypedResult<J> for Result<R, E> {}

/// An async handler of a typed job. Functions and closures are.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no async handler of `{J}`",
    note = "it takes the `Job`, its payload as `{J}` and `State`s, and returns `Result<{J}::Result, E>`"
)]
pub trait TypedJobHandler<J, Arguments>: JobHandler<Arguments> {}

/// A blocking handler of a typed job. Functions and closures are.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no blocking handler of `{J}`",
    note = "it takes the `blocking::Job`, its payload as `{J}` and `State`s, and returns `Result<{J}::Result, E>`"
)]
pub trait BlockingTypedJobHandler<J, Arguments>: BlockingJobHandler<Arguments> {}

macro_rules! functions {
    ($($argument:ident)*) => {
        impl<J, F, Fut, O, Error, $($argument),*> TypedJobHandler<J, (Error, $($argument,)*)> for F
        where
            F: Fn($($argument),*) -> Fut + JobHandler<(Error, $($argument,)*)>,
            Fut: Future<Output = O>,
            O: TypedResult<J>,
            $($argument: FromTypedJob<J, Async>,)*
        {
        }

        impl<J, F, O, Error, $($argument),*> BlockingTypedJobHandler<J, (Error, $($argument,)*)> for F
        where
            F: Fn($($argument),*) -> O + BlockingJobHandler<(Error, $($argument,)*)>,
            O: TypedResult<J>,
            $($argument: FromTypedJob<J, Blocking>,)*
        {
        }
    };
}

functions!();
functions!(A);
functions!(A B);
functions!(A B C);
functions!(A B C D);

impl Worker {
    /// Has jobs of a [type](TypedJob) run by an async handler. Its payload and its result are those of the type. Where the handler does not
    /// take the payload, name the type: `handle_typed::<Email, _, _>(handler)`.
    pub fn handle_typed<J, A, H>(self, handler: H) -> Self
    where
        J: TypedJob,
        H: TypedJobHandler<J, A, Future: Send + 'static> + Send + Sync + 'static,
    {
        self.handle(J::KIND, handler)
    }

    /// Likewise by a blocking handler.
    pub fn handle_typed_blocking<J, A, H>(self, handler: H) -> Self
    where
        J: TypedJob,
        H: BlockingTypedJobHandler<J, A> + Send + Sync + 'static,
    {
        self.handle_blocking(J::KIND, handler)
    }
}
