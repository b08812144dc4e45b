//! Trying again: past the circuit breaker, after a full-jitter backoff, within a budget that all callers of a handle share, so that a
//! thousand of them do not turn a store's hiccup into its end, and not for ever.
//!
//! Every request to a store may be sent twice, so no caller needs a rule of its own about when to.

use std::sync::Mutex;
use std::time::Duration;

use fencehold_contract::{CallContext, JobStore, StoreError};
use fencehold_core::retry::full_jitter_ms;

use crate::breaker::Permit;
use crate::connect::Fencehold;
use crate::connection::{ConnectionInner, StoreCall};
use crate::error::{Error, ShownTime};
use crate::random::jitter;
use crate::time::{first, ms};
use crate::wake::lock;

/// How failed acquisitions are tried again.
///
/// ```
/// let mut retries = fencehold::RetryBudget::default();
/// retries.budget = 20;
/// let builder = fencehold::Fencehold::builder().url("memory:").retry_budget(retries);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryBudget {
    /// The first pause is anything up to this; each later one up to twice the one before. Default 50 ms.
    pub backoff: Duration,
    /// No pause is longer than this. Default 5 s.
    pub max_backoff: Duration,
    /// How many tries all callers of a handle may save up. Default 100.
    pub budget: u32,
    /// How many tries a second are given back; every success gives back one more. Default 10.
    pub budget_per_second: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget {
            backoff: Duration::from_millis(50),
            max_backoff: Duration::from_secs(5),
            budget: 100,
            budget_per_second: 10,
        }
    }
}

/// One try, in thousandths: what a second gives back is then a whole number for every millisecond.
const TRY: u64 = 1_000;

/// The tries that all callers of a handle share.
pub(crate) struct Retries {
    policy: RetryBudget,
    purse: Mutex<RetryTokens>,
}

struct RetryTokens {
    left: u64,
    at_ms: u64,
}

impl Retries {
    pub(crate) fn new(policy: RetryBudget, now_ms: u64) -> Self {
        let left = u64::from(policy.budget.max(1)) * TRY;
        Retries { policy, purse: Mutex::new(RetryTokens { left, at_ms: now_ms }) }
    }

    /// How long to pause before the next try, after so many failures.
    pub(crate) fn backoff_ms(&self, failures: u32) -> u64 {
        let RetryBudget { backoff, max_backoff, .. } = self.policy;
        full_jitter_ms(ms(backoff), ms(max_backoff), failures.saturating_sub(1), jitter()).max(1)
    }

    /// Takes one try out of the budget; if there is none, says when there is.
    pub(crate) fn take(&self, now_ms: u64) -> Result<(), u64> {
        let mut purse = lock(&self.purse);
        let per_ms = u64::from(self.policy.budget_per_second);
        let back = now_ms.saturating_sub(purse.at_ms).saturating_mul(per_ms);
        purse.left = purse.left.saturating_add(back).min(self.full());
        purse.at_ms = purse.at_ms.max(now_ms);
        if purse.left >= TRY {
            purse.left -= TRY;
            return Ok(());
        }
        let wait_ms = (TRY - purse.left).checked_div(per_ms);
        Err(wait_ms.map_or(u64::MAX, |wait_ms| now_ms.saturating_add(wait_ms + 1)))
    }

    /// A call has succeeded: that gives back a try.
    pub(crate) fn succeeded(&self) {
        let mut purse = lock(&self.purse);
        purse.left = purse.left.saturating_add(TRY).min(self.full());
    }

    fn full(&self) -> u64 {
        u64::from(self.policy.budget.max(1)) * TRY
    }
}

/// The tries of one request.
#[derive(Debug, Default)]
pub(crate) struct RetryLoop {
    /// Whether an open breaker holds it back: not what a holder does under its claim.
    is_of_holder: bool,
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

    /// Of what a holder does under its claim, which no breaker holds back.
    pub(crate) fn of_holder(until_ms: u64) -> Self {
        RetryLoop { is_of_holder: true, ..RetryLoop::new(Some(until_ms)) }
    }

    /// The store has answered.
    pub(crate) fn answered(&mut self) {
        self.failures = 0;
        self.failing_since_ms = None;
    }

    /// Waits for the breaker to let this request through.
    pub(crate) async fn admitted<'c>(
        &mut self,
        connection: &'c ConnectionInner,
    ) -> Result<Permit<'c>, Error> {
        let breaker = &connection.breaker;
        if self.is_of_holder {
            return Ok(Permit::always(breaker));
        }
        let mut is_delayed = false;
        loop {
            let now_ms = connection.now_ms();
            let at_ms = match breaker.admit(now_ms) {
                Ok(permit) => return Ok(permit),
                Err(at_ms) => at_ms,
            };
            if at_ms >= self.give_up_ms(connection, now_ms) {
                return Err(left_alone(connection, at_ms, now_ms));
            }
            if !std::mem::replace(&mut is_delayed, true) {
                breaker.count_delayed();
            }
            first(breaker.has_room(), connection.timers.sleep_until(at_ms)).await;
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

/// What a caller learns while the breaker is open, or half open with enough calls that try: when to ask again.
pub(crate) fn left_alone(connection: &ConnectionInner, at_ms: u64, now_ms: u64) -> Error {
    connection.breaker.count_refused();
    let left = ShownTime(Duration::from_millis(at_ms.saturating_sub(now_ms)));
    let message = format!("it has failed or was slow too often, and is left alone for another {left}");
    Error::Unavailable { message }
}

/// Whether the same request may get through a moment later.
pub(crate) fn may_pass(error: &StoreError) -> bool {
    matches!(
        error,
        StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. } | StoreError::LimitReached { .. }
    )
}

impl Fencehold {
    /// Asks the store's jobs for something, and again while it cannot be reached, until the timeout.
    pub(crate) async fn ask<T>(
        &self,
        send: impl for<'c> Fn(&'c dyn JobStore, &'c CallContext) -> StoreCall<'c, T>,
    ) -> Result<T, Error> {
        self.connection().ask_until(RetryLoop::default(), 0, send).await
    }
}

impl ConnectionInner {
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
                let permit = tries.admitted(self).await?;
                let answer = self.send_job(wait_ms, &send).await;
                drop(permit);
                match answer {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(budget: u32, budget_per_second: u32) -> Retries {
        Retries::new(RetryBudget { budget, budget_per_second, ..RetryBudget::default() }, 0)
    }

    #[test]
    fn an_empty_budget_says_when_the_next_try_may_go() {
        let retries = retries(2, 10);
        assert_eq!((retries.take(0), retries.take(0)), (Ok(()), Ok(())));
        let Err(at_ms) = retries.take(0) else { panic!("the budget is spent") };
        assert_eq!(at_ms, 101);
        assert!(retries.take(at_ms - 2).is_err());
        assert_eq!(retries.take(at_ms), Ok(()));
        assert!(retries.take(at_ms).is_err());
    }

    #[test]
    fn successes_give_tries_back_and_never_more_than_the_budget() {
        let retries = retries(2, 0);
        (0..10).for_each(|_| retries.succeeded());
        assert_eq!((retries.take(0), retries.take(0), retries.take(0)), (Ok(()), Ok(()), Err(u64::MAX)));
        retries.succeeded();
        assert_eq!(retries.take(0), Ok(()));
    }

    #[test]
    fn a_pause_grows_up_to_its_cap() {
        let retries = retries(1, 1);
        for _ in 0..200 {
            assert!((1..=50).contains(&retries.backoff_ms(1)));
            assert!((1..=5_000).contains(&retries.backoff_ms(40)));
        }
        assert!((0..200).any(|_| retries.backoff_ms(40) > 1_000));
    }
}
