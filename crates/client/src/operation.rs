//! Operations: what a request handler does once for one idempotency key, however often the request arrives.
//!
//! An operation is a job that no worker can claim from a queue: the caller that begins it holds it, under a lease that is renewed
//! like any other. Its effects, its token and its ledger are a job's.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::job::{AttemptReport, BeginOperationRequest, OperationStatus as Found, Report};
use fencehold_core::job::{JobId, JobState, UniqueKey};
use fencehold_core::ledger::InDoubtPolicy;
use fencehold_core::ttl::GrantedTerm;
use fencehold_core::{Owner, Token};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::connect::Fencehold;
use crate::error::{Error, LostCause, ShownTime};
use crate::holding::HoldGrant;
use crate::job::{AttemptReporter, Job, last_try_ms};
use crate::json;
use crate::lease::TTL_DEFAULT;
use crate::random::{hold_id, job_id};
use crate::renewal::RenewalHandle;
use crate::time::ms;
use crate::worker::{RunEnd, drive};

/// For how long a key is remembered, unless told otherwise.
const WINDOW_DEFAULT: Duration = Duration::from_secs(24 * 60 * 60);

impl Fencehold {
    /// Operations of request handlers, each carried out once for its idempotency key.
    ///
    /// ```
    /// use fencehold::{Error, Fencehold, OperationStatus};
    ///
    /// # async fn charge(order: u64) -> u64 { order }
    /// async fn pay(fh: &Fencehold, key: &str, order: u64) -> Result<(u16, u64), Error> {
    ///     Ok(match fh.operations().begin(key, &order).await {
    ///         Ok(OperationStatus::Started(operation)) => {
    ///             let receipt = charge(order).await;
    ///             operation.complete(&receipt).await?;
    ///             (200, receipt)
    ///         }
    ///         Ok(OperationStatus::Completed(receipt)) => (200, receipt), // the stored answer
    ///         Ok(OperationStatus::InProgress { .. }) => (409, 0),
    ///         Ok(_) => (500, 0),
    ///         Err(Error::Conflict { .. }) => (422, 0), // the key was used for another order
    ///         Err(error) => return Err(error),
    ///     })
    /// }
    /// ```
    pub fn operations(&self) -> Operations {
        Operations {
            fencehold: self.clone(),
            ttl: TTL_DEFAULT,
            window: WINDOW_DEFAULT,
            policy: InDoubtPolicy::default(),
        }
    }
}

/// The terms on which operations begin.
#[derive(Clone, Debug)]
#[must_use = "nothing begins until `once` or `begin` is awaited"]
pub struct Operations {
    fencehold: Fencehold,
    ttl: Duration,
    window: Duration,
    policy: InDoubtPolicy,
}

impl Operations {
    /// How long others get `InProgress` when the caller that carries it out dies. Default: 30 s.
    pub fn ttl(self, ttl: Duration) -> Self {
        Operations { ttl, ..self }
    }

    /// For how long a key and its answer are kept. Default: a day.
    pub fn idempotency_window(self, window: Duration) -> Self {
        Operations { window, ..self }
    }

    /// What to do when an earlier caller died half-way: begin anew (the default), or stop as
    /// [`InDoubt`](OperationStatus::InDoubt).
    pub fn in_doubt_policy(self, policy: InDoubtPolicy) -> Self {
        Operations { policy, ..self }
    }

    /// Carries out the operation of this key, unless that was done before, and gives its answer: that of `work`, or the stored one. The
    /// payload is what the request is about.
    ///
    /// ```
    /// use fencehold::{Error, Fencehold, OperationError};
    ///
    /// # async fn charge(order: u64, token: fencehold::Token) -> Result<String, std::io::Error> { Ok(format!("{order} under {token}")) }
    /// async fn pay(fh: &Fencehold, key: &str, order: u64) -> Result<(u16, String), Error> {
    ///     let answer = fh.operations().once(key, &order, async |job| charge(order, job.token()).await).await;
    ///     Ok(match answer {
    ///         Ok(receipt) => (200, receipt),
    ///         Err(OperationError::InProgress { .. }) => (409, "the same request is under way".to_owned()),
    ///         Err(OperationError::Store(Error::Conflict { .. })) => (422, "the key was used for another order".to_owned()),
    ///         Err(OperationError::Store(error)) => return Err(error),
    ///         Err(failed) => (502, failed.to_string()),
    ///     })
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Error> {
    /// # let fh = Fencehold::connect("memory:").await?;
    /// # assert_eq!(pay(&fh, "order-17", 7).await?, (200, "7 under 1".to_owned()));
    /// # assert_eq!(pay(&fh, "order-17", 7).await?, (200, "7 under 1".to_owned()), "the stored answer");
    /// # assert_eq!(pay(&fh, "order-17", 8).await?.0, 422);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If the work fails, the operation is given up as a dropped [`Operation`] is: where its policy is [`InDoubtPolicy::Retry`], the next
    /// request begins it anew. If its lease is lost, the work is dropped at its next await.
    pub async fn once<A, E>(
        &self,
        idempotency_key: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
        work: impl AsyncFnOnce(Job) -> Result<A, E>,
    ) -> Result<A, OperationError<E>>
    where
        A: Serialize + DeserializeOwned,
    {
        match self.begin(idempotency_key, payload).await? {
            OperationStatus::Started(operation) => {
                let holding = &operation.job.attempt.holding;
                match drive(holding, std::future::pending::<()>(), work(operation.job.clone())).await {
                    RunEnd::Ended(Ok(answer)) => {
                        operation.complete(&answer).await?;
                        Ok(answer)
                    }
                    RunEnd::Ended(Err(error)) => {
                        operation.give_up().await;
                        Err(OperationError::Work(error))
                    }
                    RunEnd::Lost(cause) => Err(OperationError::Store(holding.error(cause))),
                    RunEnd::Dropped => Err(OperationError::Store(holding.error(LostCause::Released))),
                }
            }
            OperationStatus::Completed(answer) => Ok(answer),
            OperationStatus::InProgress { job_id, owner, token, remaining } => {
                Err(OperationError::InProgress { job_id, owner, token, remaining })
            }
            OperationStatus::Failed { job_id, state, error } => {
                Err(OperationError::Failed { job_id, state, error })
            }
            OperationStatus::InDoubt { job_id } => Err(OperationError::InDoubt { job_id }),
        }
    }

    /// Begins the operation of this key, or says what has become of it. The payload is what the request is about: the
    /// same key with another payload is [`Error::Conflict`].
    pub async fn begin<A: DeserializeOwned>(
        &self,
        idempotency_key: impl AsRef<str>,
        payload: &(impl Serialize + ?Sized),
    ) -> Result<OperationStatus<A>, Error> {
        let connection = self.fencehold.connection();
        let ttl_ms = ms(self.ttl);
        fencehold_core::ttl::check(ttl_ms, connection.store.capabilities().min_ttl_ms)?;
        let request = BeginOperationRequest {
            job_id: job_id(connection.clock.now().wall_ms)?,
            idempotency_key: UniqueKey::new(idempotency_key.as_ref())?,
            payload: json::written("payload", payload)?,
            hold_id: hold_id()?,
            owner: self.fencehold.owner().clone(),
            ttl_ms,
            idempotency_window_ms: ms(self.window),
            in_doubt_policy: self.policy,
        };
        // The same hold id is the same beginning: the answer to a repeat is counted from the first sending.
        let sent_ms = connection.now_ms();
        let began = self.fencehold.ask(|jobs, call| jobs.begin_operation(call, request.clone()));
        let began = began.await?.map_err(|refusal| Error::job_refused(request.job_id, refusal))?;
        Ok(match began.operation {
            Found::Started { job: claimed } => {
                let BeginOperationRequest { hold_id, owner, ttl_ms, .. } = request;
                let term =
                    GrantedTerm::new(sent_ms, began.waited_ms, connection.now_ms(), claimed.remaining_ms);
                let granted = HoldGrant::of(&claimed, hold_id, owner, ttl_ms, term);
                let (holding, handle) = (connection.take_in(granted)?, Arc::clone(&self.fencehold.handle));
                let reporter = AttemptReporter::Store(Arc::clone(&handle));
                let job = Job::new(*claimed, holding, reporter, None);
                OperationStatus::Started(Operation { job, handle, policy: self.policy, done: false })
            }
            Found::InProgress { job_id, owner, token, remaining_ms } => {
                let remaining = Duration::from_millis(remaining_ms);
                OperationStatus::InProgress { job_id, owner, token, remaining }
            }
            Found::Completed { result, .. } => OperationStatus::Completed(json::read(
                "stored answer",
                result.as_deref().unwrap_or(json::NOTHING),
            )?),
            Found::Failed { job_id, state, error } => {
                OperationStatus::Failed { job_id, state, error: error.map(String::from) }
            }
            Found::InDoubt { job_id } => OperationStatus::InDoubt { job_id },
        })
    }
}

/// What has become of an operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum OperationStatus<A> {
    /// It is the caller's to carry out.
    Started(Operation),
    /// Another caller carries it out at the moment.
    #[non_exhaustive]
    InProgress {
        /// Its job.
        job_id: JobId,
        /// Who.
        owner: Owner,
        /// Under which token.
        token: Token,
        /// How long that lasts unless it is renewed.
        remaining: Duration,
    },
    /// It was carried out, and gave this.
    Completed(A),
    /// It failed permanently, or was cancelled.
    #[non_exhaustive]
    Failed {
        /// Its job.
        job_id: JobId,
        /// How it ended.
        state: JobState,
        /// What went wrong.
        error: Option<String>,
    },
    /// The caller that carried it out died, and it is not known how far it came: a person must look.
    #[non_exhaustive]
    InDoubt {
        /// Its job.
        job_id: JobId,
    },
}

/// Why [`once`](Operations::once) has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OperationError<E> {
    /// The work failed with this.
    Work(E),
    /// Another caller carries it out at the moment.
    #[non_exhaustive]
    InProgress {
        /// Its job.
        job_id: JobId,
        /// Who.
        owner: Owner,
        /// Under which token.
        token: Token,
        /// How long that lasts unless it is renewed.
        remaining: Duration,
    },
    /// It failed permanently, or was cancelled.
    #[non_exhaustive]
    Failed {
        /// Its job.
        job_id: JobId,
        /// How it ended.
        state: JobState,
        /// What went wrong.
        error: Option<String>,
    },
    /// The caller that carried it out died, and it is not known how far it came: a person must look.
    #[non_exhaustive]
    InDoubt {
        /// Its job.
        job_id: JobId,
    },
    /// The store refused it, or the operation is no longer this caller's. The key was used for another payload:
    /// [`Error::Conflict`].
    Store(Error),
}

impl<E> From<Error> for OperationError<E> {
    fn from(error: Error) -> Self {
        OperationError::Store(error)
    }
}

impl<E: fmt::Display> fmt::Display for OperationError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OperationError::Work(error) => error.fmt(f),
            OperationError::InProgress { job_id, owner, remaining, .. } => {
                let remaining = ShownTime(*remaining);
                write!(
                    f,
                    "operation {job_id} is under way at {owner}, whose claim lasts another {remaining}: try again"
                )
            }
            OperationError::Failed { job_id, state, error } => {
                write!(f, "operation {job_id} is {state}")?;
                error.as_ref().map_or(Ok(()), |error| write!(f, ": {error}"))
            }
            OperationError::InDoubt { job_id } => write!(
                f,
                "operation {job_id} is in doubt: the caller that carried it out died, and a person must look how far it came"
            ),
            OperationError::Store(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for OperationError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            OperationError::Work(error) => error.source(),
            OperationError::Store(error) => error.source(),
            _ => None,
        }
    }
}

/// An operation that is the caller's to carry out: renewed until it is completed, failed or dropped.
///
/// Dropped without a report, it can be begun anew at once where its policy is [`InDoubtPolicy::Retry`]. Where the policy is
/// [`InDoubtPolicy::Manual`], it is left to expire, and is then in doubt: it is not known how far it came.
#[must_use = "an operation is given up as soon as it is dropped"]
pub struct Operation {
    job: Job,
    handle: Arc<RenewalHandle>,
    policy: InDoubtPolicy,
    done: bool,
}

impl Operation {
    /// Keeps the answer, for everyone who begins the same operation later.
    pub async fn complete(self, answer: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let result = Some(json::written("answer", answer)?);
        self.end(Report::Complete { result }).await
    }

    /// The operation has failed permanently, and everyone who begins it later learns so.
    pub async fn fail(self, error: impl fmt::Display) -> Result<(), Error> {
        let error = error.to_string();
        self.end(Report::Fail { error, retry_in_ms: None, permanent: true }).await
    }

    /// Releases it as if it had never begun. Only where nothing was done.
    pub async fn release(self) -> Result<(), Error> {
        self.end(Report::Release {}).await
    }

    /// As when it is dropped, but that the next caller can begin it as soon as this returns.
    async fn give_up(self) {
        let id = self.job.id();
        if self.policy == InDoubtPolicy::Retry
            && let Err(error) = self.release().await
        {
            tracing::warn!(operation = %id, %error, "a failed operation could not be released");
        }
    }

    async fn end(mut self, word: Report) -> Result<(), Error> {
        let holding = &self.job.attempt.holding;
        let report = AttemptReport { attempt: self.job.attempt_ref(), report: word };
        let until_ms = last_try_ms(&self.handle, holding);
        self.handle.connection.say_and_hear(report, until_ms).await?;
        self.handle.connection.ended(holding, LostCause::Released);
        self.done = true;
        Ok(())
    }
}

/// An operation is a job: its token, its effects, whether it is still live.
impl std::ops::Deref for Operation {
    type Target = Job;

    fn deref(&self) -> &Job {
        &self.job
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let holding = &self.job.attempt.holding;
        if self.policy == InDoubtPolicy::Retry {
            self.handle.connection.give_back(holding);
        } else {
            self.handle.connection.ended(holding, LostCause::Released);
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation").field("job", &self.job).finish_non_exhaustive()
    }
}
