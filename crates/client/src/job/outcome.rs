//! What a handler gives back, and what it fails with.

use std::fmt;
use std::time::Duration;

use fencehold_contract::job::Report;
use fencehold_core::job::JobId;
use serde::Serialize;

use crate::error::Error;
use crate::handler::IntoJobError;
use crate::holding::HoldTarget;
use crate::json;
use crate::time::ms;

/// What came of an attempt, other than an error.
///
/// A handler that only ever completes need not know it: whatever it returns is the result.
///
/// ```
/// use std::time::Duration;
/// use fencehold::{Job, JobError, Outcome};
///
/// async fn poll(job: Job, build: String) -> Result<Outcome, JobError> {
///     # async fn is_ready(_: &str) -> bool { false }
///     if !is_ready(&build).await {
///         return Ok(job.snooze(Duration::from_secs(60))); // not a failure: look again in a minute
///     }
///     Outcome::complete(&build)
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = fencehold::testing::TestJob::new("poll", "build-7").run(poll).await;
/// assert_eq!(run.snoozed(), Some(Duration::from_secs(60)));
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "an outcome says nothing until the handler returns it"]
pub struct Outcome {
    /// `None`: nothing is said.
    word: Option<Report>,
}

impl Outcome {
    /// The job is completed, with this result.
    pub fn complete(result: &(impl Serialize + ?Sized)) -> Result<Self, JobError> {
        let result = json::written("result", result)?;
        let result = (&*result != json::NOTHING).then_some(result);
        Ok(Outcome { word: Some(Report::Complete { result }) })
    }

    /// Put the job off. Counts as nothing: neither as a failure nor as a crash.
    pub fn snooze(wait: Duration) -> Self {
        Outcome { word: Some(Report::Snooze { delay_ms: ms(wait) }) }
    }

    /// Release the job, for the next free worker to run at once. Counts as nothing. A job that was asked to stop by
    /// [`cancel`](crate::Jobs::cancel) is then cancelled.
    pub fn release() -> Self {
        Outcome { word: Some(Report::Release {}) }
    }

    /// Report nothing, and renew no more: the claim expires, which counts as a crash. For work that could not be stopped, so
    /// that no other worker may begin before the claim has ended; and for a claim that is lost.
    pub fn let_expire() -> Self {
        Outcome { word: None }
    }

    pub(crate) fn into_report(self) -> Option<Report> {
        self.word
    }
}

/// What a handler may return beside an error: an [`Outcome`], or anything that can be written as JSON, which is then the
/// job's result.
pub trait IntoOutcome {
    /// The outcome that it is.
    fn into_outcome(self) -> Result<Outcome, JobError>;
}

impl IntoOutcome for Outcome {
    fn into_outcome(self) -> Result<Outcome, JobError> {
        Ok(self)
    }
}

impl<T: Serialize> IntoOutcome for T {
    fn into_outcome(self) -> Result<Outcome, JobError> {
        Outcome::complete(&self)
    }
}

/// Why an attempt did not come to its end. `?` makes one of every error, with its text and those of its causes.
///
/// It deliberately is no [`std::error::Error`] itself: that is what lets `?` take them all. What is no such error either, such as
/// `anyhow::Error`, becomes one by [`from_error`](JobError::from_error); in a function that fails with another type,
/// [`into_error`](JobError::into_error) does the reverse.
///
/// ```
/// use std::time::Duration;
/// use fencehold::{Job, JobError};
///
/// async fn send(_job: Job, address: String) -> Result<(), JobError> {
///     let port: u16 = "http".parse()?; // any error is a failure, and is tried again by the job's policy
///     # let _ = port;
///     if address.is_empty() {
///         return Err(JobError::new("there is no address").permanent()); // not to be tried again
///     }
///     Err(JobError::new("the provider asks us to wait").retry_in(Duration::from_secs(90)))
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = fencehold::testing::TestJob::new("send", "a@example.org").run(send).await;
/// assert_eq!(run.failure(), Some("invalid digit found in string"));
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "an attempt fails only if its handler returns this"]
pub struct JobError {
    text: String,
    retry_in_ms: Option<u64>,
    permanent: bool,
    definite: bool,
    /// There is nothing (more) to say about the attempt at this job: it is over already.
    over: Option<JobId>,
}

impl JobError {
    /// A failure in these words.
    pub fn new(text: impl fmt::Display) -> Self {
        let text = text.to_string();
        JobError { text, retry_in_ms: None, permanent: false, definite: false, over: None }
    }

    /// A failure with the text of this error and of its causes: any error that a [handler](crate::handler) may return. `?` does the same
    /// for every [`std::error::Error`]; this is for the others, as in `.map_err(JobError::from_error)?`.
    ///
    /// ```
    /// use fencehold::{Job, JobError};
    ///
    /// async fn charge(cents: u64) -> anyhow::Result<String> {
    ///     # if cents > 0 {
    ///     anyhow::bail!("the card was declined");
    ///     # }
    ///     # Ok(String::new())
    /// }
    ///
    /// async fn pay(job: Job, cents: u64) -> Result<String, JobError> {
    ///     job.once("charge", async |_key| charge(cents).await.map_err(JobError::from_error)).await
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let run = fencehold::testing::TestJob::new("pay", &990_u64).run(pay).await;
    /// # assert_eq!(run.failure(), Some("the card was declined"));
    /// # }
    /// ```
    pub fn from_error<E: IntoJobError<Form>, Form>(error: E) -> Self {
        error.into_job_error()
    }

    /// The [effect with an intent](crate::Job::once_with_intent) that failed with this certainly did not happen: the provider refused it, say.
    /// Without this word it may have: a timeout or a broken connection says nothing about what the other side did.
    pub fn effect_did_not_happen(self) -> Self {
        JobError { definite: true, ..self }
    }

    pub(crate) fn is_definite(&self) -> bool {
        self.definite && self.over.is_none()
    }

    /// Permanent: the job fails now, and is not tried again, whatever its retry policy says.
    pub fn permanent(self) -> Self {
        JobError { permanent: true, ..self }
    }

    /// To be tried again after this time instead of what the job's policy says.
    pub fn retry_in(self, wait: Duration) -> Self {
        JobError { retry_in_ms: Some(ms(wait)), ..self }
    }

    /// Whether the attempt has ended already, by a lost claim or an effect in doubt: stop, there is nothing to report. (Or the attempt at
    /// another job, where the handler worked on one: then it is a failure.)
    pub fn is_lost(&self) -> bool {
        self.over.is_some()
    }

    /// What to say about the attempt at this job; `None`: nothing, it is over already. What is said of another job is a failure like any
    /// other.
    pub(crate) fn into_report(self, held: &HoldTarget) -> Option<Report> {
        let JobError { text: error, retry_in_ms, permanent, over, .. } = self;
        let is_over = over.is_some_and(|job_id| *held == HoldTarget::Job(job_id));
        (!is_over).then_some(Report::Fail { error, retry_in_ms, permanent })
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl JobError {
    /// It as a [`std::error::Error`], for functions that fail with one. A handler that returns it, or an error that has it as a cause,
    /// still fails as it says: [permanently](JobError::permanent), or with its own [delay](JobError::retry_in), or not at all where the
    /// claim is [lost](JobError::is_lost).
    ///
    /// ```
    /// use fencehold::{Job, JobError};
    ///
    /// async fn pay(job: Job, cents: u64) -> anyhow::Result<String> {
    ///     let receipt = job.once("charge", async |key| Ok(format!("{cents} under {key}")));
    ///     Ok(receipt.await.map_err(JobError::into_error)?)
    /// }
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() {
    /// # let run = fencehold::testing::TestJob::new("pay", &990_u64).run(pay).await;
    /// # assert!(run.result::<String>().is_some_and(|receipt| receipt.starts_with("990 under")));
    /// # }
    /// ```
    pub fn into_error(self) -> impl std::error::Error + Send + Sync + 'static {
        ErrorOfJob(self)
    }

    pub(crate) fn of(error: &(dyn std::error::Error + 'static)) -> Self {
        let mut causes = std::iter::successors(Some(error), |error| error.source());
        causes
            .find_map(JobError::known)
            .unwrap_or_else(|| JobError::new(""))
            .with_text(error)
    }

    /// What the library itself has said of the attempt.
    fn known(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        if let Some(ErrorOfJob(known)) = error.downcast_ref() {
            return Some(known.clone());
        }
        // A claim that is over is no failure of the work.
        let (Error::Lost { target: HoldTarget::Job(job_id), .. } | Error::InDoubt { job_id, .. }) =
            error.downcast_ref()?
        else {
            return None;
        };
        Some(JobError { over: Some(*job_id), ..JobError::new("") })
    }

    fn with_text(self, error: &(dyn std::error::Error + 'static)) -> Self {
        JobError { text: with_causes(error), ..self }
    }
}

/// A [`JobError`] where one that is a [`std::error::Error`] is asked for.
#[derive(Debug)]
struct ErrorOfJob(JobError);

impl fmt::Display for ErrorOfJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ErrorOfJob {}

impl From<JobError> for Box<dyn std::error::Error + Send + Sync> {
    fn from(error: JobError) -> Self {
        Box::new(ErrorOfJob(error))
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for JobError {
    fn from(error: E) -> Self {
        JobError::of(&error)
    }
}

/// The text of an error and of what caused it. A cause whose words the error repeats already is not told twice.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let said = error.to_string();
        if !text.contains(&said) {
            text.push_str(": ");
            text.push_str(&said);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use fencehold_core::{Key, Token};

    use super::*;
    use crate::error::LostCause;

    #[derive(Debug)]
    struct Outer(std::num::ParseIntError);

    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the port is wrong")
        }
    }

    impl std::error::Error for Outer {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    fn failing() -> Result<(), JobError> {
        "http".parse::<u16>().map_err(Outer)?;
        Ok(())
    }

    #[test]
    fn an_error_is_told_with_its_causes() {
        let error = failing().expect_err("not a number");
        assert_eq!(error.to_string(), "the port is wrong: invalid digit found in string");
        let word = error
            .retry_in(Duration::from_secs(2))
            .permanent()
            .into_report(&HoldTarget::Job(JobId::from_bytes([0; 16])));
        let Some(Report::Fail { retry_in_ms, permanent, .. }) = word else { panic!("{word:?}") };
        assert_eq!((retry_in_ms, permanent), (Some(2_000), true));
    }

    #[test]
    fn a_lost_claim_is_nothing_to_report() {
        let job = JobId::from_random(7, [1; 10]);
        let (target, cause) = (HoldTarget::Job(job), LostCause::NotRenewed { failure: None });
        let lost =
            |target| Error::Lost { target, token: Token::new(3), cause: cause.clone(), current_token: None };
        let error = JobError::from(lost(target)).permanent();
        assert!(error.is_lost());
        assert!(error.clone().into_report(&HoldTarget::Job(job)).is_none());
        let other = JobId::from_random(8, [2; 10]);
        assert!(
            error.into_report(&HoldTarget::Job(other)).is_some(),
            "the claim of another job is not its claim"
        );
        let key = HoldTarget::Key(Key::new("k").expect("a key"));
        assert!(!JobError::from(lost(key)).is_lost(), "a lease that the handler held is not its claim");
        let error = JobError::from(Error::JobNotFound { job_id: job });
        assert!(
            error.into_report(&HoldTarget::Job(job)).is_some(),
            "what is said of another job is a failure like any other"
        );
    }
}
