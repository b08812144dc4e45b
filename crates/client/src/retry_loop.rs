//! Asking the store again: past the breaker, after a pause, within the budget that all callers of a handle share, and not
//! for ever.
//!
//! Every request to a store may be sent twice, so no caller needs a rule of its own about when to.

use fencehold_contract::{CallContext, JobStore, StoreError};

use crate::connection::{ConnectionInner, StoreCall};
use crate::error::Error;

/// The tries of one request.
#[derive(Debug, Default)]
pub(crate) struct RetryLoop {
    /// Until when it is tried; `None`: until the handle's timeout after the first failure.
    pub(crate) until_ms: Option<u64>,
    /// Failures in a row, and since when.
    pub(crate) failures: u32,
    failing_since_ms: Option<u64>,
}

impl RetryLoop {
    pub(crate) fn new(until_ms: Option<u64>) -> Self {
        RetryLoop { until_ms, ..RetryLoop::default() }
    }

    /// The store has answered.
    pub(crate) fn answered(&mut self) {
        self.failures = 0;
        self.failing_since_ms = None;
    }

    /// Waits for the breaker to let this request through.
    pub(crate) async fn admitted(&mut self, connection: &ConnectionInner) -> Result<(), Error> {
        loop {
            let now_ms = connection.now_ms();
            let Err(at_ms) = connection.breaker.admit(now_ms) else { return Ok(()) };
            if at_ms >= self.give_up_ms(connection, now_ms) {
                return Err(left_alone());
            }
            connection.timers.sleep_until(at_ms).await;
        }
    }

    /// The store could not, or may not have been able to, decide: pauses before the next try. `Err`: there is no time
    /// left for one.
    pub(crate) async fn pause(
        &mut self,
        connection: &ConnectionInner,
        error: StoreError,
    ) -> Result<(), StoreError> {
        let now_ms = connection.now_ms();
        self.failures = self.failures.saturating_add(1);
        let give_up_ms = self.give_up_ms(connection, now_ms);
        let mut at_ms = now_ms.saturating_add(connection.retries.backoff_ms(self.failures));
        loop {
            if at_ms >= give_up_ms {
                return Err(error);
            }
            connection.timers.sleep_until(at_ms).await;
            match connection.retries.take(connection.now_ms()) {
                Ok(()) => break,
                // Everybody of this handle waits for the same budget: do not come back all at once.
                Err(ready_ms) => at_ms = ready_ms.saturating_add(connection.retries.backoff_ms(1)),
            }
        }
        tracing::debug!(failures = self.failures, %error, "asking the store again");
        Ok(())
    }

    fn give_up_ms(&mut self, connection: &ConnectionInner, now_ms: u64) -> u64 {
        let since_ms = *self.failing_since_ms.get_or_insert(now_ms);
        self.until_ms.unwrap_or_else(|| since_ms.saturating_add(connection.timeout_ms))
    }
}

/// What a caller learns while the breaker is open.
pub(crate) fn left_alone() -> Error {
    Error::Unavailable { message: "it has failed too often, and is left alone for a moment".to_owned() }
}

/// Whether the same request may get through a moment later.
pub(crate) fn may_pass(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. } | StoreError::LimitReached { .. }
    )
}

impl ConnectionInner {
    /// Asks the store's jobs for something, and again while it cannot be reached, until the timeout.
    pub(crate) async fn ask<T>(
        &self,
        send: impl for<'c> Fn(&'c dyn JobStore, &'c CallContext) -> StoreCall<'c, T>,
    ) -> Result<T, Error> {
        self.ask_until(RetryLoop::default(), 0, send).await
    }

    /// Likewise, by these tries, for something that may take `wait_ms` to answer.
    pub(crate) async fn ask_until<T>(
        &self,
        mut tries: RetryLoop,
        wait_ms: u64,
        send: impl for<'c> Fn(&'c dyn JobStore, &'c CallContext) -> StoreCall<'c, T>,
    ) -> Result<T, Error> {
        self.jobs()?;
        let asking = async {
            loop {
                tries.admitted(self).await?;
                match self.send_job(wait_ms, &send).await {
                    Ok(answer) => return Ok(answer),
                    Err(error) if may_pass(&error) => tries.pause(self, error).await?,
                    Err(error) => return Err(error.into()),
                }
            }
        };
        self.unless_closed(asking).await
    }
}

/// The one answer to a request with one item.
pub(crate) fn only<T>(answers: Vec<T>) -> Result<T, Error> {
    let none = || Error::OutcomeUnknown { message: "the store left the request unanswered".to_owned() };
    answers.into_iter().next().ok_or_else(none)
}
