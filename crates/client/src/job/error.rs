//! What a handler fails with.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use fencehold_contract::job::Report;

use crate::error::Error;
use crate::holding::HoldTarget;
use crate::time::ms;

/// Why an attempt did not come to its end. `?` makes one of every error, with its text and those of its causes.
///
/// It deliberately is no [`std::error::Error`] itself: that is what lets `?` take them all.
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
#[derive(Debug)]
pub struct JobError {
    kind: JobErrorKind,
}

#[derive(Debug)]
enum JobErrorKind {
    /// The work went wrong.
    Failed { text: String, retry_in_ms: Option<u64>, permanent: bool, definite: bool },
    /// There is nothing (more) to say about this attempt: it is over already.
    Over(Error),
}

impl JobError {
    /// A failure in these words. From within an [effect with an intent](crate::Job::once_with_intent) it says that the
    /// effect did not happen.
    pub fn new(text: impl fmt::Display) -> Self {
        JobError {
            kind: JobErrorKind::Failed {
                text: text.to_string(),
                retry_in_ms: None,
                permanent: false,
                definite: true,
            },
        }
    }

    /// It is not known whether the effect that failed with this happened. So it is of every error that `?` passes on: a
    /// timeout or a broken connection says nothing about what the other side did.
    pub fn in_doubt(self) -> Self {
        self.with_definite(false)
    }

    /// The effect that failed with this certainly did not happen, also where `?` passed the error on.
    pub fn definite(self) -> Self {
        self.with_definite(true)
    }

    fn with_definite(mut self, is: bool) -> Self {
        if let JobErrorKind::Failed { definite, .. } = &mut self.kind {
            *definite = is;
        }
        self
    }

    pub(crate) fn is_definite(&self) -> bool {
        matches!(self.kind, JobErrorKind::Failed { definite: true, .. })
    }

    /// Permanent: the job fails now, and is not tried again, whatever its retry policy says.
    pub fn permanent(mut self) -> Self {
        if let JobErrorKind::Failed { permanent, .. } = &mut self.kind {
            *permanent = true;
        }
        self
    }

    /// To be tried again after this time instead of what the job's policy says.
    pub fn retry_in(mut self, wait: Duration) -> Self {
        if let JobErrorKind::Failed { retry_in_ms, .. } = &mut self.kind {
            *retry_in_ms = Some(ms(wait));
        }
        self
    }

    /// Whether the attempt has ended already, by a lost claim or an effect in doubt: stop, there is nothing to report.
    pub fn is_lost(&self) -> bool {
        matches!(self.kind, JobErrorKind::Over(_))
    }

    /// What to say about the attempt; `None`: nothing, it is over already.
    pub(crate) fn into_report(self) -> Option<Report> {
        match self.kind {
            JobErrorKind::Failed { text, retry_in_ms, permanent, .. } => {
                Some(Report::Fail { error: text, retry_in_ms, permanent })
            }
            JobErrorKind::Over(_) => None,
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            JobErrorKind::Failed { text, .. } => f.write_str(text),
            JobErrorKind::Over(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for JobError {
    fn from(error: E) -> Self {
        // What the library itself says about a claim that is over is no failure of the work.
        if let Some(over @ (Error::Lost { target: HoldTarget::Job(_), .. } | Error::InDoubt { .. })) =
            (&error as &dyn Any).downcast_ref::<Error>()
        {
            return JobError { kind: JobErrorKind::Over(over.clone()) };
        }
        JobError::new(with_causes(&error)).in_doubt()
    }
}

/// The text of an error and of what caused it. A cause whose words the error repeats already is not told twice.
fn with_causes(error: &dyn std::error::Error) -> String {
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
    use fencehold_core::job::JobId;
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
        let word = error.retry_in(Duration::from_secs(2)).permanent().into_report();
        assert!(
            matches!(word, Some(Report::Fail { retry_in_ms: Some(2_000), permanent: true, .. })),
            "{word:?}"
        );
    }

    #[test]
    fn a_lost_claim_is_nothing_to_report() {
        let job = JobId::from_random(7, [1; 10]);
        let (target, cause) = (HoldTarget::Job(job), LostCause::NotRenewed { failure: None });
        let lost =
            |target| Error::Lost { target, token: Token::new(3), cause: cause.clone(), current_token: None };
        let error = JobError::from(lost(target)).permanent();
        assert!(error.is_lost());
        assert!(error.into_report().is_none());
        let key = HoldTarget::Key(Key::new("k").expect("a key"));
        assert!(!JobError::from(lost(key)).is_lost(), "a lease that the handler held is not its claim");
        let error = JobError::from(Error::JobNotFound { job_id: job });
        assert!(error.into_report().is_some(), "what is said of another job is a failure like any other");
    }
}
