//! A job as its handler has it: what it is about, whether it is still this worker's, and what it can say. And the words
//! in which stores speak of jobs.
//!
//! Nouns: an *attempt* is one claim of a job, with a token of its own; an [`Outcome`] is what a handler gives back, a
//! [`JobError`] what it fails with; an [effect](Job::once) is recorded once, whatever the number of attempts.
//!
//! Deliberately absent: completing from here. A handler says what came of its work by what it returns.

mod outcome;
mod reporter;

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimedJob, Report};
use fencehold_core::ledger::idempotency_key;
use fencehold_core::{BadInput, Token};
use serde::Serialize;

pub use fencehold_contract::job::{
    AttemptView, CompensatedEffect, EffectPage, EffectView, EnqueuedJob, FindingKind, JobCounts, JobDetail,
    JobFilter, JobPage, JobSelector, JobView, ListEffectsRequest, ListJobsRequest, QueueMode, QueueView,
    RunnerView, ScheduleSpec, ScheduleView,
};
pub use fencehold_core::job::{
    AttemptOutcome, CompensationState, JobKind, JobOptions, JobRefusal, JobState, QueueName, ReportedAttempt,
    ScheduleName, UniqueKey,
};
pub use fencehold_core::job::{EffectName, JobId};
pub use fencehold_core::ledger::{Compensation, Effect, EffectState, EffectStateKind, InDoubtPolicy};
pub use fencehold_core::retry::{Backoff, RetryPolicy};

pub use outcome::{IntoOutcome, JobError, Outcome};
pub(crate) use reporter::{AttemptReporter, last_try_ms};

use crate::error::{Error, LostCause};
use crate::fence::KeyToken;
use crate::holding::Holding;
use crate::json;
use crate::time::{First, first};
use crate::watch::{LeaseState, LeaseWatch, YieldRequest};
use crate::worker::WorkerShared;

/// Why a handler should come to a stop at the next good place.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The claim is lost. An async handler is dropped without a request to stop.
    Lost(LostCause),
    /// The job was cancelled: undo what is half done, and release it.
    Cancelled,
    /// A job of higher priority needs the place: write a checkpoint, and release the job.
    Yield(YieldRequest),
    /// The worker is stopping: what does not end in time is released.
    Draining,
}

/// One attempt at a job: what a handler works with. Clones are of the same attempt.
///
/// ```
/// use fencehold::{Job, JobError, Outcome};
/// use std::time::Duration;
///
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Export { rows: u64 }
///
/// async fn export(job: Job, export: Export) -> Result<Outcome, JobError> {
///     // Goes on where an earlier attempt left off.
///     let mut row = job.last_checkpoint().and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_be_bytes);
///     while row < export.rows {
///         if job.is_cancelled() {
///             return Ok(Outcome::release());
///         }
///         row += 1; // … and the work itself, under `job.token()`
///         job.progress(&format!("{row} of {}", export.rows))?;
///     }
///     job.checkpoint(row.to_be_bytes()).await?;
///     Outcome::complete(&row)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = fencehold::testing::TestJob::new("export", &Export { rows: 3 }).run(export).await;
/// assert_eq!(run.result::<u64>(), Some(3));
/// # }
/// ```
#[derive(Clone)]
pub struct Job {
    pub(crate) attempt: Arc<JobAttempt>,
}

/// What the clones of a job share.
pub(crate) struct JobAttempt {
    /// What was claimed, without its payload: that is the handler's.
    claimed: ClaimedJob,
    pub(crate) holding: Arc<Holding>,
    pub(crate) reporter: AttemptReporter,
    /// What is known of the job's effects.
    pub(crate) ledger: Mutex<HashMap<EffectName, KnownEffect>>,
    /// The worker that runs it, if one does.
    shared: Option<Arc<WorkerShared>>,
}

/// What an attempt knows of an effect.
pub(crate) enum KnownEffect {
    /// This attempt is about it at the moment.
    UnderWay,
    /// An attempt announced or recorded it.
    Kept(Effect),
}

impl Job {
    pub(crate) fn new(
        mut claimed: ClaimedJob,
        holding: Arc<Holding>,
        reporter: AttemptReporter,
        shared: Option<Arc<WorkerShared>>,
    ) -> Self {
        let effects = std::mem::take(&mut claimed.effects);
        let known = effects
            .into_iter()
            .map(|effect| (effect.name.clone(), KnownEffect::Kept(effect)));
        let ledger = Mutex::new(known.collect());
        Job { attempt: Arc::new(JobAttempt { claimed, holding, reporter, ledger, shared }) }
    }

    pub(crate) fn attempt_ref(&self) -> AttemptRef {
        let granted = &self.attempt.holding.granted;
        AttemptRef { job_id: self.id(), hold_id: granted.hold, token: granted.token }
    }

    /// Its id.
    pub fn id(&self) -> JobId {
        self.attempt.claimed.id
    }

    /// Its queue.
    pub fn queue(&self) -> &QueueName {
        &self.attempt.claimed.queue
    }

    /// What it is.
    pub fn kind(&self) -> &JobKind {
        &self.attempt.claimed.kind
    }

    /// The fencing token of this attempt: larger than that of every attempt before it. Hand it to whatever the job
    /// changes.
    pub fn token(&self) -> Token {
        self.attempt.claimed.token
    }

    /// What this attempt presents at a [fence](crate::fence): namespace, the job's id as the key, token and owner.
    pub fn key_token(&self) -> KeyToken {
        let owner = self.attempt.holding.granted.owner.clone();
        let pass = KeyToken::for_job(self.id(), self.token())
            .in_namespace(self.attempt.reporter.namespace())
            .with_owner(owner);
        match &self.attempt.reporter {
            AttemptReporter::Store(handle) => pass.with_store(handle),
            AttemptReporter::Kit(_) => pass,
        }
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt.claimed.attempt
    }

    /// How often it has failed so far.
    pub fn failure_count(&self) -> u16 {
        self.attempt.claimed.failure_count
    }

    /// How many workers have died over it so far.
    pub fn crash_count(&self) -> u16 {
        self.attempt.claimed.crash_count
    }

    /// Its labels.
    pub fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attempt.claimed.labels.iter().map(|(name, value)| (&**name, &**value))
    }

    /// The W3C trace context (`traceparent`) under which it was enqueued.
    pub fn traceparent(&self) -> Option<&str> {
        self.attempt.claimed.traceparent.as_deref()
    }

    /// Where an earlier attempt left off.
    pub fn last_checkpoint(&self) -> Option<&[u8]> {
        self.attempt.claimed.checkpoint.as_deref()
    }

    /// The effect that it compensates, where it is a compensation.
    pub fn compensates(&self) -> Option<&CompensatedEffect> {
        self.attempt.claimed.compensates.as_ref()
    }

    /// Whether the claim is this attempt's, judged by the clock at this moment. Blocking handlers look between their
    /// steps; async handlers are dropped when it is not.
    pub fn is_live(&self) -> bool {
        self.attempt.holding.look().state != LeaseState::Lost
    }

    /// When the claim ends at the latest unless it is renewed, in milliseconds on the boot-time clock
    /// ([`Fencehold::clock`](crate::Fencehold::clock)). Every renewal moves it.
    pub fn deadline_ms(&self) -> u64 {
        self.attempt.holding.look().deadline_ms
    }

    /// How long the claim can still be relied on unless it is renewed. Zero: it is lost.
    pub fn remaining(&self) -> Duration {
        self.attempt.holding.remaining()
    }

    /// Follows the claim from beside it: every new deadline, every change of state. Its key is the one by which the events of
    /// the store name the job.
    pub fn watch(&self) -> LeaseWatch {
        let pass = KeyToken::for_job(self.id(), self.token());
        LeaseWatch::new(pass.key().clone(), Arc::clone(&self.attempt.holding))
    }

    /// Waits until the claim is lost, and says why.
    pub fn lost(&self) -> impl Future<Output = LostCause> + Send + use<> {
        let holding = Arc::clone(&self.attempt.holding);
        async move { holding.lost().await }
    }

    /// Whether the job was cancelled. Learnt with a renewal.
    pub fn is_cancelled(&self) -> bool {
        self.attempt.holding.is_called_off()
    }

    /// Waits until the job is cancelled. False: the claim ended first.
    ///
    /// The job becomes `cancelled` when this attempt has ended in any way but by completing. So stop at a good place and
    /// [release](Outcome::release) the job.
    pub fn cancelled(&self) -> impl Future<Output = bool> + Send + use<> {
        let holding = Arc::clone(&self.attempt.holding);
        async move { holding.called_off().await.is_some() }
    }

    /// The request of another job that this attempt yield, if there is one. Learnt with a renewal.
    pub fn yield_request(&self) -> Option<YieldRequest> {
        self.attempt.holding.look().yield_request
    }

    /// Waits until a job of higher priority requests that this one yield. `None`: the claim ended first.
    pub fn yield_requested(&self) -> impl Future<Output = Option<YieldRequest>> + Send + use<> {
        let holding = Arc::clone(&self.attempt.holding);
        async move { holding.yield_requested().await }
    }

    /// Waits until there is a reason to stop: the job was cancelled, another job requests that it yield, its worker is
    /// stopping, or the claim is lost.
    pub fn stop_requested(&self) -> impl Future<Output = StopReason> + Send + use<> {
        let (holding, shared) = (Arc::clone(&self.attempt.holding), self.attempt.shared.clone());
        async move {
            let asked = async {
                let called_off = holding.called_off();
                match first(called_off, holding.yield_requested()).await {
                    First::Left(Some(_)) => StopReason::Cancelled,
                    First::Right(Some(notice)) => StopReason::Yield(notice),
                    First::Left(None) | First::Right(None) => StopReason::Lost(holding.lost().await),
                }
            };
            let Some(shared) = shared else { return asked.await };
            match first(asked, shared.draining()).await {
                First::Left(reason) => reason,
                First::Right(()) => StopReason::Draining,
            }
        }
    }

    /// Waits until the worker's [drain timeout](crate::Worker::drain_timeout) is over, or was cut short: the worker waits
    /// for this handler no longer. An async handler is dropped then. A blocking one has the
    /// [stop timeout](crate::Worker::stop_timeout) to end.
    pub fn drain_timed_out(&self) -> impl Future<Output = ()> + Send + use<> {
        let shared = self.attempt.shared.clone();
        async move {
            match shared {
                Some(shared) => shared.stopping().await,
                None => std::future::pending().await,
            }
        }
    }

    /// The key under which every attempt at this job has the effect of this name. Hand it to whatever the effect calls:
    /// a payment provider, say, knows a repetition by it.
    pub fn idempotency_key(&self, effect: impl AsRef<str>) -> Result<String, BadInput> {
        Ok(idempotency_key(self.id(), &EffectName::new(effect.as_ref())?))
    }

    /// Keeps where a later attempt should go on from, should this one not come to its end. When this returns, it is kept.
    pub async fn checkpoint(&self, bytes: impl Into<Vec<u8>>) -> Result<(), Error> {
        let word = Report::Checkpoint { checkpoint: bytes.into() };
        let report = AttemptReport { attempt: self.attempt_ref(), report: word };
        self.attempt.reporter.say(report, &self.attempt.holding).await
    }

    /// Says how far it has come, for people. It goes out with the next call and is not waited for; of several in a row
    /// only the newest does.
    pub fn progress(&self, note: &(impl Serialize + ?Sized)) -> Result<(), Error> {
        let word = Report::Progress { progress: json::written("progress", note)? };
        let report = AttemptReport { attempt: self.attempt_ref(), report: word };
        self.attempt.reporter.note(report, &self.attempt.holding);
        Ok(())
    }

    /// Put the job off: give this back from the handler. It counts as nothing.
    pub fn snooze(&self, wait: Duration) -> Outcome {
        Outcome::snooze(wait)
    }

    /// The claim is lost.
    pub(crate) fn lost_error(&self) -> Option<Error> {
        let why = self.attempt.holding.look().lost?;
        Some(self.attempt.holding.error(why))
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("id", &self.id())
            .field("queue", self.queue())
            .field("kind", self.kind())
            .field("token", &self.token())
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}
