//! The circuit breaker: when a store keeps failing, new acquisitions stop asking it for a moment, and then one of
//! them tries.
//!
//! Only what says something about the store counts: `Unavailable` and `Unknown` are failures; every other answer, also
//! 'held', shows a store that works. Renewals and releases feed the breaker and are never held back by it: a lease
//! must not be lost to caution.

use std::sync::Mutex;
use std::time::Duration;

use crate::time::ms;
use crate::wake::lock;

/// When the circuit breaker opens, and for how long.
///
/// ```
/// let mut policy = fencehold::CircuitBreakerPolicy::default();
/// policy.failures_in_a_row = 3;
/// let builder = fencehold::Fencehold::builder().url("memory:").circuit_breaker(policy);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CircuitBreakerPolicy {
    /// Opens after this many failures with no success between them. Default 5.
    pub failures_in_a_row: u32,
    /// Opens when this share of the calls of a window failed. Default 50.
    pub failures_percent: u32,
    /// A window with fewer calls than this says nothing about the share. Default 20.
    pub window_calls_min: u32,
    /// How long a window is. Default 10 s.
    pub window: Duration,
    /// How long it stays open before one call may try. Default 1 s.
    pub open_for: Duration,
}

impl Default for CircuitBreakerPolicy {
    fn default() -> Self {
        CircuitBreakerPolicy {
            failures_in_a_row: 5,
            failures_percent: 50,
            window_calls_min: 20,
            window: Duration::from_secs(10),
            open_for: Duration::from_secs(1),
        }
    }
}

/// How the breaker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CircuitBreakerState {
    /// Calls go through.
    Closed,
    /// Acquisitions are held back.
    Open,
    /// One acquisition at a time may try.
    HalfOpen,
}

pub(crate) struct Breaker {
    policy: CircuitBreakerPolicy,
    inner: Mutex<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    standing: BreakerPhase,
    in_a_row: u32,
    window: FailureWindow,
}

#[derive(Clone, Copy, Debug, Default)]
enum BreakerPhase {
    #[default]
    Closed,
    Open {
        until_ms: u64,
    },
    /// A trial that is never heard of again, because its caller left, must not keep everybody out: it counts only
    /// until this moment.
    HalfOpen {
        trial_until_ms: u64,
    },
}

#[derive(Debug, Default)]
struct FailureWindow {
    since_ms: u64,
    calls: u32,
    failures: u32,
}

impl Breaker {
    pub(crate) fn new(policy: CircuitBreakerPolicy) -> Self {
        Breaker { policy, inner: Mutex::default() }
    }

    /// Whether a call may go now; if not, when to ask again.
    pub(crate) fn admit(&self, now_ms: u64) -> Result<(), u64> {
        let mut inner = lock(&self.inner);
        match inner.standing {
            BreakerPhase::Closed => Ok(()),
            BreakerPhase::Open { until_ms } | BreakerPhase::HalfOpen { trial_until_ms: until_ms } => {
                if now_ms < until_ms {
                    return Err(until_ms);
                }
                let trial_until_ms = now_ms.saturating_add(ms(self.policy.open_for).max(1));
                inner.standing = BreakerPhase::HalfOpen { trial_until_ms };
                Ok(())
            }
        }
    }

    /// The store has answered.
    pub(crate) fn succeeded(&self, now_ms: u64) {
        let mut inner = lock(&self.inner);
        inner.in_a_row = 0;
        match inner.standing {
            BreakerPhase::Closed => inner.window.count(now_ms, ms(self.policy.window), false),
            BreakerPhase::Open { .. } | BreakerPhase::HalfOpen { .. } => {
                inner.standing = BreakerPhase::Closed;
                inner.window = FailureWindow { since_ms: now_ms, ..FailureWindow::default() };
                tracing::info!("the store answers again");
            }
        }
    }

    /// The store has failed.
    pub(crate) fn failed(&self, now_ms: u64) {
        let mut inner = lock(&self.inner);
        inner.in_a_row = inner.in_a_row.saturating_add(1);
        inner.window.count(now_ms, ms(self.policy.window), true);
        let open = match inner.standing {
            BreakerPhase::Closed => {
                let FailureWindow { calls, failures, .. } = inner.window;
                let share =
                    u64::from(failures) * 100 >= u64::from(self.policy.failures_percent) * u64::from(calls);
                inner.in_a_row >= self.policy.failures_in_a_row.max(1)
                    || (calls >= self.policy.window_calls_min.max(1) && share)
            }
            BreakerPhase::HalfOpen { .. } => true,
            BreakerPhase::Open { .. } => false,
        };
        if open {
            let until_ms = now_ms.saturating_add(ms(self.policy.open_for).max(1));
            inner.standing = BreakerPhase::Open { until_ms };
            tracing::warn!(failures_in_a_row = inner.in_a_row, "the store keeps failing: acquisitions pause");
        }
    }

    pub(crate) fn state(&self, now_ms: u64) -> CircuitBreakerState {
        match lock(&self.inner).standing {
            BreakerPhase::Closed => CircuitBreakerState::Closed,
            BreakerPhase::Open { until_ms } if now_ms < until_ms => CircuitBreakerState::Open,
            BreakerPhase::Open { .. } | BreakerPhase::HalfOpen { .. } => CircuitBreakerState::HalfOpen,
        }
    }
}

impl FailureWindow {
    fn count(&mut self, now_ms: u64, window_ms: u64, failed: bool) {
        if now_ms.saturating_sub(self.since_ms) >= window_ms {
            *self = FailureWindow { since_ms: now_ms, ..FailureWindow::default() };
        }
        self.calls = self.calls.saturating_add(1);
        self.failures = self.failures.saturating_add(u32::from(failed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(CircuitBreakerPolicy::default())
    }

    #[test]
    fn it_opens_after_failures_in_a_row_and_not_before() {
        let breaker = breaker();
        for _ in 0..4 {
            breaker.failed(0);
        }
        breaker.succeeded(0);
        for _ in 0..4 {
            breaker.failed(0);
        }
        assert_eq!(breaker.admit(0), Ok(()), "a success between them starts the count anew");
        breaker.failed(0);
        assert_eq!(breaker.admit(0), Err(1_000));
        assert_eq!(breaker.state(0), CircuitBreakerState::Open);
    }

    #[test]
    fn it_opens_when_half_the_calls_of_a_window_fail() {
        let breaker = breaker();
        for _ in 0..9 {
            breaker.succeeded(0);
            breaker.failed(0);
        }
        breaker.succeeded(0);
        assert_eq!(breaker.state(0), CircuitBreakerState::Closed, "19 calls say nothing yet");
        breaker.failed(0);
        assert_eq!(breaker.state(0), CircuitBreakerState::Open);
    }

    #[test]
    fn an_old_window_says_nothing_about_now() {
        let breaker = breaker();
        for _ in 0..9 {
            breaker.failed(0);
            breaker.succeeded(0);
        }
        breaker.succeeded(10_000);
        breaker.failed(10_000);
        assert_eq!(breaker.state(10_000), CircuitBreakerState::Closed);
    }

    #[test]
    fn half_open_lets_one_call_try_and_its_outcome_decides() {
        let breaker = breaker();
        (0..5).for_each(|_| breaker.failed(0));
        assert_eq!(breaker.admit(999), Err(1_000));
        assert_eq!(breaker.admit(1_000), Ok(()), "one may try");
        assert_eq!(breaker.state(1_000), CircuitBreakerState::HalfOpen);
        assert_eq!(breaker.admit(1_000), Err(2_000), "and only one");
        breaker.failed(1_500);
        assert_eq!(breaker.admit(2_000), Err(2_500), "its failure opens anew");
        assert_eq!(breaker.admit(2_500), Ok(()));
        breaker.succeeded(2_600);
        assert_eq!(breaker.state(2_600), CircuitBreakerState::Closed);
        assert_eq!((breaker.admit(2_600), breaker.admit(2_600)), (Ok(()), Ok(())));
    }

    #[test]
    fn a_trial_that_is_never_heard_of_again_keeps_nobody_out() {
        let breaker = breaker();
        (0..5).for_each(|_| breaker.failed(0));
        assert_eq!(breaker.admit(1_000), Ok(()));
        assert_eq!(breaker.admit(2_000), Ok(()));
    }
}
