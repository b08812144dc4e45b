//! How often to try again: a full-jitter backoff between one caller's tries, and a budget that all callers of a handle
//! share, so that a thousand of them do not turn a store's hiccup into its end.

use std::sync::Mutex;
use std::time::Duration;

use fencehold_core::retry::full_jitter_ms;

use crate::random::jitter;
use crate::time::ms;
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
    pub backoff_max: Duration,
    /// How many tries all callers of a handle may save up. Default 100.
    pub budget: u32,
    /// How many tries a second are given back; every success gives back one more. Default 10.
    pub budget_per_second: u32,
}

impl Default for RetryBudget {
    fn default() -> Self {
        RetryBudget {
            backoff: Duration::from_millis(50),
            backoff_max: Duration::from_secs(5),
            budget: 100,
            budget_per_second: 10,
        }
    }
}

/// One try, in thousandths: what a second gives back is then a whole number for every millisecond.
const TRY: u64 = 1_000;

/// The tries that all callers of a handle share.
#[derive(Debug)]
pub(crate) struct Retries {
    policy: RetryBudget,
    purse: Mutex<RetryTokens>,
}

#[derive(Debug)]
struct RetryTokens {
    left: u64,
    at_ms: u64,
}

impl Retries {
    pub(crate) fn new(policy: RetryBudget, now_ms: u64) -> Self {
        let full = u64::from(policy.budget.max(1)) * TRY;
        Retries { policy, purse: Mutex::new(RetryTokens { left: full, at_ms: now_ms }) }
    }

    /// How long to pause before the next try, after so many failures.
    pub(crate) fn backoff_ms(&self, failures: u32) -> u64 {
        let RetryBudget { backoff, backoff_max, .. } = self.policy;
        full_jitter_ms(ms(backoff), ms(backoff_max), failures.saturating_sub(1), jitter()).max(1)
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
        Err((TRY - purse.left)
            .checked_div(per_ms)
            .map_or(u64::MAX, |wait_ms| now_ms.saturating_add(wait_ms + 1)))
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
