//! What a handler fails with.

use std::any::Any;
use std::fmt;
use std::time::Duration;

use fencehold_contract::job::Report;

use crate::error::Error;
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
///         return Err(JobError::new("there is no address").for_good()); // not to be tried again
///     }
///     Err(JobError::new("the provider asks us to wait").retry_in(Duration::from_secs(90)))
/// }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() {
/// let run = fencehold::testing::Trial::new("send", "a@example.org").run(send).await;
/// assert_eq!(run.failure(), Some("invalid digit found in string"));
/// # }
/// ```
#[derive(Debug)]
pub struct JobError {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    /// The work went wrong.
    Failed { text: String, retry_in_ms: Option<u64>, for_good: bool, definite: bool },
    /// There is nothing (more) to say about this attempt: it is over already.
    Over(Error),
}

impl JobError {
    /// A failure in these words. From within an [announced effect](crate::Job::once_with_intent) it says that the effect
    /// did not happen.
    pub fn new(text: impl fmt::Display) -> Self {
        JobError {
            kind: Kind::Failed { text: text.to_string(), retry_in_ms: None, for_good: false, definite: true },
        }
    }

    /// Nobody can know whether the effect happened that failed with this. So it is of every error that `?` passes on: a
    /// timeout or a broken connection says nothing about what the other side did.
    pub fn indeterminate(self) -> Self {
        self.with_definite(false)
    }

    /// The effect that failed with this certainly did not happen, also where `?` passed the error on.
    pub fn definite(self) -> Self {
        self.with_definite(true)
    }

    fn with_definite(mut self, is: bool) -> Self {
        if let Kind::Failed { definite, .. } = &mut self.kind {
            *definite = is;
        }
        self
    }

    pub(crate) fn is_definite(&self) -> bool {
        matches!(self.kind, Kind::Failed { definite: true, .. })
    }

    /// Not to be tried again, whatever the job's policy says.
    pub fn for_good(mut self) -> Self {
        if let Kind::Failed { for_good, .. } = &mut self.kind {
            *for_good = true;
        }
        self
    }

    /// To be tried again after this time instead of what the job's policy says.
    pub fn retry_in(mut self, wait: Duration) -> Self {
        if let Kind::Failed { retry_in_ms, .. } = &mut self.kind {
            *retry_in_ms = Some(ms(wait));
        }
        self
    }

    /// Whether the attempt is over already, by a lost claim or an effect in doubt: stop, there is nothing to report.
    pub fn is_over(&self) -> bool {
        matches!(self.kind, Kind::Over(_))
    }

    /// What to say about the attempt; `None`: nothing, it is over already.
    pub(crate) fn into_word(self) -> Option<Report> {
        match self.kind {
            Kind::Failed { text, retry_in_ms, for_good, .. } => {
                Some(Report::Fail { error: text, retry_in_ms, permanent: for_good })
            }
            Kind::Over(_) => None,
        }
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            Kind::Failed { text, .. } => f.write_str(text),
            Kind::Over(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + Send + Sync + 'static> From<E> for JobError {
    fn from(error: E) -> Self {
        // What the library itself says about a claim that is over is no failure of the work.
        if let Some(over @ (Error::ClaimLost { .. } | Error::InDoubt { .. })) =
            (&error as &dyn Any).downcast_ref::<Error>()
        {
            return JobError { kind: Kind::Over(over.clone()) };
        }
        JobError::new(with_causes(&error)).indeterminate()
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
    use fencehold_core::Token;
    use fencehold_core::job::JobId;

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
        let word = error.retry_in(Duration::from_secs(2)).for_good().into_word();
        assert!(
            matches!(word, Some(Report::Fail { retry_in_ms: Some(2_000), permanent: true, .. })),
            "{word:?}"
        );
    }

    #[test]
    fn a_lost_claim_is_nothing_to_report() {
        let job = JobId::from_random(7, [1; 10]);
        let why = LostCause::NotRenewed { failure: None };
        let error = JobError::from(Error::ClaimLost { job, token: Token::new(3), why, current_token: None })
            .for_good();
        assert!(error.is_over());
        assert!(error.into_word().is_none());
        let error = JobError::from(Error::JobNotFound { job });
        assert!(error.into_word().is_some(), "what is said of another job is a failure like any other");
    }
}
