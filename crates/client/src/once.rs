//! Effects that happen once, whatever the number of attempts.
//!
//! A recorded effect gives its stored value and is not had again. Between having an effect and recording it a worker may
//! die; the next attempt then has it again *under the same idempotency key*, by which whatever it calls can tell. Where
//! that is not good enough, an *intent* is written first, and an attempt that finds one without an outcome goes by its
//! policy: retry, or stop for a person to look.

use std::fmt;
use std::pin::Pin;

use fencehold_contract::job::{AttemptLedgerEntry, LedgerEntry, LedgerResponse};
use fencehold_core::BadInput;
use fencehold_core::job::{EffectName, JobKind, QueueName};
use fencehold_core::ledger::{Compensation, Effect, EffectState, InDoubtPolicy, idempotency_key};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::job::{Job, JobError, KnownEffect};
use crate::json;
use crate::wake::lock;

/// Makes the compensation of an effect from what the effect gave.
type MakeUndo<'a, T> = Box<dyn FnOnce(&T) -> Result<Compensation, BadInput> + Send + 'a>;

/// An effect that is to happen once. Nothing happens until it is awaited.
#[must_use = "the effect does not happen until this is awaited"]
pub struct OnceEffect<'a, T, F> {
    job: &'a Job,
    name: Result<EffectName, BadInput>,
    intent: Option<InDoubtPolicy>,
    undo: Result<Option<MakeUndo<'a, T>>, BadInput>,
    undo_queue: Result<Option<QueueName>, BadInput>,
    effect: F,
}

impl<T, F> fmt::Debug for OnceEffect<'_, T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceEffect")
            .field("job", &self.job.id())
            .field("name", &self.name)
            .field("intent", &self.intent)
            .finish_non_exhaustive()
    }
}

impl Job {
    /// Has an effect once: if it is recorded already, by this or an earlier attempt, its stored value is returned and
    /// `effect` does not run. Otherwise it runs, under the idempotency key that it is given, and what it gives is
    /// recorded under this attempt's token. A stale attempt can record nothing.
    ///
    /// ```
    /// use fencehold::{Job, JobError};
    ///
    /// async fn pay(job: Job, cents: u64) -> Result<String, JobError> {
    ///     # async fn charge(key: &str, cents: u64) -> Result<String, std::io::Error> { Ok(format!("{key} {cents}")) }
    ///     let receipt = job
    ///         .once("charge", async |key| Ok(charge(&key, cents).await?))
    ///         .compensate_with("refund", &cents) // should the job fail permanently, or be cancelled
    ///         .await?;
    ///     Ok(receipt)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// let again = fencehold::testing::TestJob::new("pay", &990_u64).attempt(2).recorded_effect("charge", &"receipt-7");
    /// let run = again.run(pay).await;
    /// assert_eq!(run.result::<String>().as_deref(), Some("receipt-7"));
    /// assert!(run.effects_recorded().is_empty(), "the second attempt charges nothing");
    /// # }
    /// ```
    pub fn once<T, F, Fut>(&self, name: impl AsRef<str>, effect: F) -> OnceEffect<'_, T, F>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<T, JobError>>,
    {
        OnceEffect {
            job: self,
            name: EffectName::new(name.as_ref()),
            intent: None,
            undo: Ok(None),
            undo_queue: Ok(None),
            effect,
        }
    }

    /// Like [`once`](Job::once), and records an intent before the effect happens. An attempt that finds the intent without
    /// an outcome cannot know whether the effect happened, and goes by this policy: have it again under the same
    /// idempotency key, or stop, and the job is *in doubt* until a person has
    /// [resolved](crate::Jobs::effect_happened) it.
    ///
    /// An effect that fails with [`effect_did_not_happen`](JobError::effect_did_not_happen) said of the error: the intent is withdrawn,
    /// and the next attempt has it as if for the first time. Every other error leaves it open, as a panic, a handler
    /// that was dropped and a worker that died do.
    pub fn once_with_intent<T, F, Fut>(
        &self,
        name: impl AsRef<str>,
        policy: InDoubtPolicy,
        effect: F,
    ) -> OnceEffect<'_, T, F>
    where
        T: Serialize + DeserializeOwned,
        F: FnOnce(String) -> Fut,
        Fut: Future<Output = Result<T, JobError>>,
    {
        OnceEffect { intent: Some(policy), ..self.once(name, effect) }
    }
}

impl<'a, T, F> OnceEffect<'a, T, F> {
    /// The compensation: a job that undoes the effect. It is enqueued, once, when this job has failed permanently or was
    /// cancelled, after the compensations of later effects.
    pub fn compensate_with(self, kind: impl AsRef<str>, payload: &(impl Serialize + ?Sized)) -> Self {
        let undo = JobKind::new(kind.as_ref()).and_then(|kind| undo(kind, payload));
        let undo = undo.map(|undo| -> Option<MakeUndo<'a, T>> { Some(Box::new(move |_| Ok(undo))) });
        OnceEffect { undo, ..self }
    }

    /// Likewise, with a payload made from what the effect gave.
    pub fn compensate_from<P: Serialize>(
        self,
        kind: impl AsRef<str>,
        payload: impl FnOnce(&T) -> P + Send + 'a,
    ) -> Self {
        let undo = JobKind::new(kind.as_ref()).map(|kind| -> Option<MakeUndo<'a, T>> {
            Some(Box::new(move |value| undo(kind, &payload(value))))
        });
        OnceEffect { undo, ..self }
    }

    /// The queue of the compensation. Default: this job's queue.
    pub fn compensation_queue(self, queue: impl AsRef<str>) -> Self {
        OnceEffect { undo_queue: QueueName::new(queue.as_ref()).map(Some), ..self }
    }
}

fn undo(kind: JobKind, payload: &(impl Serialize + ?Sized)) -> Result<Compensation, BadInput> {
    Ok(Compensation { kind, queue: None, payload: json::written("payload of the undo job", payload)? })
}

impl<'a, T, F, Fut> IntoFuture for OnceEffect<'a, T, F>
where
    T: Serialize + DeserializeOwned + Send + 'a,
    F: FnOnce(String) -> Fut + Send + 'a,
    Fut: Future<Output = Result<T, JobError>> + Send + 'a,
{
    type Output = Result<T, JobError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send + 'a>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.have())
    }
}

impl<T, F, Fut> OnceEffect<'_, T, F>
where
    T: Serialize + DeserializeOwned,
    F: FnOnce(String) -> Fut,
    Fut: Future<Output = Result<T, JobError>>,
{
    async fn have(self) -> Result<T, JobError> {
        let OnceEffect { job, name, intent, undo, undo_queue, effect } = self;
        let (name, undo, undo_queue) = (name?, undo?, undo_queue?);
        let (mut under_way, found) = EffectInProgress::begin(job, &name)?;
        let announced = match &found {
            Some(Effect { state: EffectState::Intended(policy), .. }) => Some(*policy),
            Some(recorded) => return Ok(stored(recorded)?),
            None => None,
        };
        // What an earlier attempt announced is asked about, also by one that would not have announced it.
        if let Some(policy) = intent.or(announced) {
            let act = LedgerEntry::Begin { effect: name.clone(), in_doubt_policy: policy };
            match write(job, act).await? {
                LedgerResponse::Proceed {} => under_way.kept = Some(intended(job, &name, policy)),
                LedgerResponse::Recorded { recorded_effect: recorded } => {
                    let value = stored(&recorded)?;
                    under_way.keep(recorded);
                    return Ok(value);
                }
                _ => return Err(Error::InDoubt { job_id: job.id(), effect: name.to_string() }.into()),
            }
        }
        if let Some(lost) = job.lost_error() {
            return Err(lost.into());
        }
        let value = match effect(idempotency_key(job.id(), &name)).await {
            Ok(value) => value,
            Err(error) => {
                // What was announced before this run may have happened then.
                if error.is_definite() && intent.is_some() && announced.is_none() {
                    under_way.withdraw().await;
                }
                return Err(error);
            }
        };
        let undo = match undo {
            Some(make) => Some(Compensation { queue: undo_queue, ..make(&value)? }),
            None => None,
        };
        let json = json::written("value of an effect", &value)?;
        let act = LedgerEntry::Record { effect: name.clone(), value: json, compensation: undo };
        match write(job, act).await? {
            // The first record stands, also against this one.
            LedgerResponse::Recorded { recorded_effect: recorded } => {
                let value = if recorded.token == job.token() { value } else { stored(&recorded)? };
                under_way.keep(recorded);
                Ok(value)
            }
            answer => {
                let message = format!("the store answered the record of effect {name} with {answer:?}");
                Err(Error::OutcomeUnknown { message }.into())
            }
        }
    }
}

/// Has a job stopped whose effect an earlier attempt announced and said no more of. What its handler gets.
pub(crate) async fn in_doubt(job: &Job, name: &EffectName) -> Error {
    let act = LedgerEntry::Begin { effect: name.clone(), in_doubt_policy: InDoubtPolicy::Manual };
    match write(job, act).await {
        Err(error) => error,
        Ok(_) => Error::InDoubt { job_id: job.id(), effect: name.to_string() },
    }
}

async fn write(job: &Job, act: LedgerEntry) -> Result<LedgerResponse, Error> {
    let attempt = &job.attempt;
    let entry = AttemptLedgerEntry { attempt: job.attempt_ref(), entry: act };
    attempt.reporter.write(entry, &attempt.holding).await
}

/// An effect as it stands once this attempt has announced it.
fn intended(job: &Job, name: &EffectName, policy: InDoubtPolicy) -> Effect {
    Effect {
        name: name.clone(),
        position: 0,
        token: job.token(),
        written_at_ms: 0,
        state: EffectState::Intended(policy),
        value: None,
        compensation: None,
        compensation_job_id: None,
    }
}

fn stored<T: DeserializeOwned>(effect: &Effect) -> Result<T, BadInput> {
    json::read("stored value of an effect", effect.value.as_deref().unwrap_or(json::NOTHING))
}

/// An effect that this attempt is about at the moment. A second one of the same name at the same time would happen
/// although it could not be recorded.
struct EffectInProgress<'a> {
    job: &'a Job,
    name: &'a EffectName,
    /// What is known of it when this is over.
    kept: Option<Effect>,
}

impl<'a> EffectInProgress<'a> {
    fn begin(job: &'a Job, name: &'a EffectName) -> Result<(Self, Option<Effect>), BadInput> {
        let found = match lock(&job.attempt.ledger).insert(name.clone(), KnownEffect::UnderWay) {
            Some(KnownEffect::UnderWay) => {
                return Err(BadInput::new("effect", format!("{name} is under way already in this attempt")));
            }
            Some(KnownEffect::Kept(effect)) => Some(effect),
            None => None,
        };
        Ok((EffectInProgress { job, name, kept: found.clone() }, found))
    }

    fn keep(mut self, effect: Effect) {
        self.kept = Some(effect);
    }

    /// The effect did not happen: withdraws its announcement.
    async fn withdraw(mut self) {
        match write(self.job, LedgerEntry::Withdraw { effect: self.name.clone() }).await {
            Ok(_) => self.kept = None,
            // It stays announced, and the next attempt goes by its policy.
            Err(error) => {
                tracing::warn!(job = %self.job.id(), effect = %self.name, %error, "an announced effect did not happen, and the store could not be notified");
            }
        }
    }
}

impl Drop for EffectInProgress<'_> {
    fn drop(&mut self) {
        let mut ledger = lock(&self.job.attempt.ledger);
        match self.kept.take() {
            Some(effect) => ledger.insert(self.name.clone(), KnownEffect::Kept(effect)),
            None => ledger.remove(self.name),
        };
    }
}
