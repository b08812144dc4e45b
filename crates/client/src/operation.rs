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
use crate::error::{Error, LostCause};
use crate::holding::HoldGrant;
use crate::job::{AttemptReporter, Job, last_try_ms};
use crate::json;
use crate::lease::TTL_DEFAULT;
use crate::random::{hold_id, job_id};
use crate::renewal::RenewalHandle;
use crate::time::ms;

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
    Failed {
        /// Its job.
        job_id: JobId,
        /// How it ended.
        state: JobState,
        /// What went wrong.
        error: Option<String>,
    },
    /// The caller that carried it out died, and it is not known how far it came: a person must look.
    InDoubt {
        /// Its job.
        job_id: JobId,
    },
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
