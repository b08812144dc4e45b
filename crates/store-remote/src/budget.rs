//! The budget of one call to a server, or to one of several.

use std::sync::Arc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_contract::clock::Clock;
use fencehold_contract::problem::store_error;
use fencehold_contract::problem::{ErrorKind, Problem};
use fencehold_core::Key;
use fencehold_net::{AttemptError, CallBudget, ResendPolicy};

use super::http_client::HttpClient;

/// Why no answer came of one attempt.
#[derive(Clone, Debug)]
pub(super) enum RequestError {
    /// Nothing was sent.
    Unreached(String),
    /// Nothing was sent, because its certificate was not accepted.
    Distrusted(String),
    /// It was sent, and what came of it is not known.
    Unclear(String),
    /// The server said no.
    Problem(Box<Problem>),
    /// It was carried out, and the answer cannot be read. Nor could another one.
    Unread(String),
    /// What answered is no Fencehold server, or does not want us.
    Stranger(String),
}

pub(super) struct ServerBudget {
    pub(super) call: CallBudget,
    /// Servers that have not been asked yet.
    others: usize,
    /// Whether the call may stand in line: then one attempt may take all the time.
    waits: bool,
}

impl ServerBudget {
    pub(super) fn new(clock: &Arc<dyn Clock>, wire: &HttpClient, timeout_ms: u64, wait_ms: u64) -> Self {
        let call = CallBudget::new(clock, wire.place(), timeout_ms, wait_ms);
        ServerBudget { call, others: wire.servers().saturating_sub(1), waits: wait_ms > 0 }
    }

    /// The call changes nothing, so no outcome of it can be unknown.
    pub(super) fn reads_only(mut self, reads_only: bool) -> Self {
        self.call = self.call.reads_only(reads_only);
        self
    }

    /// Waits for one attempt, but not beyond the deadline.
    pub(super) async fn limit<T>(
        &self,
        attempt: impl Future<Output = Result<T, RequestError>>,
    ) -> Result<T, RequestError> {
        // A server that hangs must leave time for the others.
        let share = if self.others > 0 && !self.waits { 2 } else { 1 };
        let left = (self.call.left() / share).max(Duration::from_millis(1));
        tokio::time::timeout(left, attempt)
            .await
            .unwrap_or_else(|_| Err(RequestError::Unclear("no answer came in time".to_owned())))
    }

    /// Pauses before the next attempt, unless there is a server that was not asked yet; or fails, if there is to be none. `about`
    /// is the key that was asked about.
    pub(super) async fn retry_or_fail(
        &mut self,
        fault: RequestError,
        about: Option<&Key>,
        repeat: ResendPolicy,
    ) -> Result<(), StoreError> {
        let mut at_least = Duration::ZERO;
        let failure = match fault {
            RequestError::Unreached(why) | RequestError::Distrusted(why) => AttemptError::NotDone(why),
            RequestError::Unclear(why) => AttemptError::Unknown(why),
            RequestError::Stranger(why) => AttemptError::Unusable(why),
            RequestError::Unread(why) => {
                self.call.outcome_unknown = true;
                AttemptError::Unusable(why)
            }
            RequestError::Problem(problem) => {
                let may_pass = match problem.kind {
                    // Nothing was done, and another server may be able to.
                    ErrorKind::Unavailable => self.others > 0,
                    // Nothing was done, and it may work in a moment: here, or at this server's successor.
                    ErrorKind::Stopping | ErrorKind::RateLimited => true,
                    _ => false,
                };
                if may_pass {
                    at_least = Duration::from_millis(problem.retry_after_ms.unwrap_or(0));
                    AttemptError::NotDone(problem.message.unwrap_or(problem.detail))
                } else {
                    AttemptError::Refused(store_error(*problem, about))
                }
            }
        };
        let pause = if self.others > 0 { Duration::ZERO } else { at_least };
        self.call.check(repeat, failure, pause)?;
        if self.others > 0 {
            self.others -= 1;
        } else {
            self.call.pause(at_least).await;
        }
        Ok(())
    }
}
