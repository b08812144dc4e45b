//! The circuit breaker: when a store keeps failing, or responds slowly, new acquisitions stop asking it for a moment, and then a few
//! of them try.
//!
//! Nouns: a call is *bad* if it failed or was slow; a *probe* is a call that tries while the breaker is half open; a *permit* is what a
//! call has that may go.
//!
//! Only what says something about the store counts: `Unavailable` and `OutcomeUnknown` are failures; every other response, also
//! 'held', shows a store that works, if it came in time. Renewals, releases, reports and what a running job records feed the
//! breaker and are never held back by it: a lease must not be lost to caution.
//!
//! Deliberately absent: clock and randomness, which are arguments; and what to do with a call that may not go (`retry`).

mod policy;
#[cfg(test)]
mod tests;

use std::time::Duration;

use fencehold_core::retry::{Backoff, RetryPolicy};

pub use policy::{CircuitBreakerPolicy, CircuitBreakerState, CircuitBreakerStats};

use crate::time::ms;
use crate::wake::WatchValue;

/// By default no response that takes less is slow, however short the handle's timeout.
const SLOW_MS_MIN: u64 = 1_000;

pub(crate) struct Breaker {
    policy: CircuitBreakerPolicy,
    slow_ms: u64,
    random: fn() -> u64,
    inner: WatchValue<BreakerState>,
}

#[derive(Debug, Default)]
struct BreakerState {
    phase: BreakerPhase,
    /// Since when. A bad call that was sent earlier says nothing about the store as it is now.
    since_ms: u64,
    /// How often the phase changed.
    changes: u64,
    bad_in_a_row: u32,
    window: CallWindow,
    counts: BreakerCounts,
    probes_begun: u64,
}

#[derive(Debug, Default)]
enum BreakerPhase {
    #[default]
    Closed,
    Open {
        until_ms: u64,
    },
    HalfOpen {
        probes: Vec<Probe>,
        /// For how long a probe keeps others out: as long as the breaker was open.
        probe_ms: u64,
    },
}

/// A call that tries. One that is never heard of again must not keep others out: it counts until this moment.
#[derive(Debug)]
struct Probe {
    id: u64,
    until_ms: u64,
}

#[derive(Debug, Default)]
struct CallWindow {
    since_ms: u64,
    calls: u32,
    bad: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct BreakerCounts {
    opened_in_a_row: u32,
    opened: u64,
    refused: u64,
    delayed: u64,
    failed: u64,
    slow: u64,
}

/// What was wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BadCall {
    Failed,
    Slow,
}

/// A change to be logged, once nothing is locked any more.
enum Change {
    Opened { bad: BadCall, bad_in_a_row: u32, opened_in_a_row: u32, open_ms: u64 },
    HalfOpened,
    Closed,
}

impl Breaker {
    /// `timeout_ms` is that of the handle.
    pub(crate) fn new(policy: CircuitBreakerPolicy, timeout_ms: u64, random: fn() -> u64) -> Self {
        let slow_ms = policy.slow_after.map_or((timeout_ms / 2).max(SLOW_MS_MIN), ms).max(1);
        Breaker { policy, slow_ms, random, inner: WatchValue::default() }
    }

    /// Whether a call may go now; if not, when to ask again.
    pub(crate) fn admit(&self, now_ms: u64) -> Result<Permit<'_>, u64> {
        let mut admitted = Ok(None);
        let change = self.inner.update(|inner| {
            let mut change = None;
            if let BreakerPhase::Open { until_ms } = inner.phase {
                if now_ms < until_ms {
                    admitted = Err(until_ms);
                    return None;
                }
                let probe_ms = until_ms.saturating_sub(inner.since_ms).max(1);
                inner.enter(BreakerPhase::HalfOpen { probes: Vec::new(), probe_ms }, now_ms);
                change = Some(Change::HalfOpened);
            }
            if let BreakerPhase::HalfOpen { probes, probe_ms } = &mut inner.phase {
                probes.retain(|probe| now_ms < probe.until_ms);
                if probes.len() < self.probes_max() {
                    let (id, until_ms) = (inner.probes_begun, now_ms.saturating_add(*probe_ms));
                    inner.probes_begun += 1;
                    probes.push(Probe { id, until_ms });
                    admitted = Ok(Some(id));
                } else {
                    admitted = Err(earliest(probes));
                }
            }
            change
        });
        self.log(change);
        admitted.map(|probe| Permit { breaker: self, probe })
    }

    /// The store has responded to a call. One that may wait in line (`waits`) is never slow.
    pub(crate) fn answered(&self, sent_ms: u64, now_ms: u64, waits: bool) {
        if !waits && now_ms.saturating_sub(sent_ms) >= self.slow_ms {
            return self.bad(BadCall::Slow, sent_ms, now_ms);
        }
        self.log(self.inner.update(|inner| {
            inner.bad_in_a_row = 0;
            if let BreakerPhase::Closed = inner.phase {
                inner.window.count(now_ms, ms(self.policy.window), false);
                return None;
            }
            inner.enter(BreakerPhase::Closed, now_ms);
            inner.window = CallWindow { since_ms: now_ms, ..CallWindow::default() };
            Some(Change::Closed)
        }));
    }

    /// A call has failed.
    pub(crate) fn failed(&self, sent_ms: u64, now_ms: u64) {
        self.bad(BadCall::Failed, sent_ms, now_ms);
    }

    fn bad(&self, bad: BadCall, sent_ms: u64, now_ms: u64) {
        self.log(self.inner.update(|inner| {
            match bad {
                BadCall::Failed => inner.counts.failed += 1,
                BadCall::Slow => inner.counts.slow += 1,
            }
            if sent_ms < inner.since_ms {
                return None;
            }
            inner.bad_in_a_row = inner.bad_in_a_row.saturating_add(1);
            inner.window.count(now_ms, ms(self.policy.window), true);
            let opens = match inner.phase {
                BreakerPhase::Closed => {
                    inner.bad_in_a_row >= self.policy.failures_in_a_row.max(1)
                        || inner.window.is_bad(&self.policy)
                }
                BreakerPhase::HalfOpen { .. } => true,
                BreakerPhase::Open { .. } => false,
            };
            opens.then(|| self.open(inner, bad, now_ms))
        }));
    }

    fn open(&self, inner: &mut BreakerState, bad: BadCall, now_ms: u64) -> Change {
        let calm_ms = now_ms.saturating_sub(inner.since_ms);
        if matches!(inner.phase, BreakerPhase::Closed) && calm_ms >= ms(self.policy.reset_after) {
            inner.counts.opened_in_a_row = 0;
        }
        inner.counts.opened_in_a_row = inner.counts.opened_in_a_row.saturating_add(1);
        inner.counts.opened += 1;
        let opened_in_a_row = inner.counts.opened_in_a_row;
        let open_ms = self.policy.open_ms(opened_in_a_row, (self.random)());
        inner.enter(BreakerPhase::Open { until_ms: now_ms.saturating_add(open_ms) }, now_ms);
        Change::Opened { bad, bad_in_a_row: inner.bad_in_a_row, opened_in_a_row, open_ms }
    }

    fn probes_max(&self) -> usize {
        usize::try_from(self.policy.max_half_open_calls.max(1)).unwrap_or(usize::MAX)
    }

    /// Waits until a call may go, except for what time alone brings: that is when [`admit`](Self::admit) says to ask again.
    pub(crate) async fn has_room(&self) {
        let has_room = |inner: &BreakerState| match &inner.phase {
            BreakerPhase::Closed => true,
            BreakerPhase::Open { .. } => false,
            BreakerPhase::HalfOpen { probes, .. } => probes.len() < self.probes_max(),
        };
        self.inner.when(|inner, _| has_room(inner).then_some(())).await;
    }

    /// How often its phase has changed.
    pub(crate) fn changes(&self) -> u64 {
        self.inner.read(|inner, _| inner.changes)
    }

    /// Waits until its phase has changed more often than this, and gives how often.
    pub(crate) async fn changed(&self, seen: u64) -> u64 {
        self.inner
            .when(|inner, _| (inner.changes != seen).then_some(inner.changes))
            .await
    }

    /// A call got an error because it may not go.
    pub(crate) fn count_refused(&self) {
        self.count(|counts| counts.refused += 1);
    }

    /// A call has to wait until it may go.
    pub(crate) fn count_delayed(&self) {
        self.count(|counts| counts.delayed += 1);
    }

    fn count(&self, count: impl FnOnce(&mut BreakerCounts)) {
        self.inner.update(|inner| {
            count(&mut inner.counts);
            None::<()>
        });
    }

    pub(crate) fn stats(&self, now_ms: u64) -> CircuitBreakerStats {
        self.inner.read(|inner, _| {
            let (state, at_ms) = match &inner.phase {
                BreakerPhase::Closed => (CircuitBreakerState::Closed, now_ms),
                BreakerPhase::Open { until_ms } if now_ms < *until_ms => {
                    (CircuitBreakerState::Open, *until_ms)
                }
                BreakerPhase::HalfOpen { probes, .. } if probes.len() >= self.probes_max() => {
                    (CircuitBreakerState::HalfOpen, earliest(probes))
                }
                BreakerPhase::Open { .. } | BreakerPhase::HalfOpen { .. } => {
                    (CircuitBreakerState::HalfOpen, now_ms)
                }
            };
            let BreakerCounts { opened_in_a_row, opened, refused, delayed, failed, slow } = inner.counts;
            CircuitBreakerStats {
                state,
                retry_in: (now_ms < at_ms).then(|| Duration::from_millis(at_ms - now_ms)),
                opened_in_a_row,
                opened_count: opened,
                refused_count: refused,
                delayed_count: delayed,
                failed_count: failed,
                slow_count: slow,
            }
        })
    }

    /// One event for each change. Not while anything is locked: who listens is other people's code.
    fn log(&self, change: Option<Change>) {
        match change {
            None => {}
            Some(Change::Opened { bad, bad_in_a_row: failures_in_a_row, opened_in_a_row, open_ms }) => {
                let what = match bad {
                    BadCall::Failed => "keeps failing",
                    BadCall::Slow => "is slow",
                };
                let (state, slow_after_ms) = (CircuitBreakerState::Open.name(), self.slow_ms);
                tracing::warn!(
                    state,
                    failures_in_a_row,
                    opened_in_a_row,
                    open_ms,
                    slow_after_ms,
                    "the store {what}: acquisitions pause"
                );
            }
            Some(Change::HalfOpened) => {
                let (state, calls_max) = (CircuitBreakerState::HalfOpen.name(), self.probes_max());
                tracing::info!(state, calls_max, "acquisitions may try the store");
            }
            Some(Change::Closed) => {
                tracing::info!(state = CircuitBreakerState::Closed.name(), "the store answers again");
            }
        }
    }
}

impl CircuitBreakerPolicy {
    fn open_ms(&self, opened_in_a_row: u32, random: u64) -> u64 {
        let open_for = self.open_for.max(Duration::from_millis(1));
        RetryPolicy::new(Backoff::Exponential, open_for, open_for.max(self.max_open_for))
            .jitter_percent(self.open_jitter_percent)
            .delay_ms(opened_in_a_row, random)
            .max(1)
    }
}

impl BreakerState {
    fn enter(&mut self, phase: BreakerPhase, now_ms: u64) {
        self.phase = phase;
        self.since_ms = now_ms;
        self.changes += 1;
    }
}

impl CallWindow {
    fn count(&mut self, now_ms: u64, window_ms: u64, bad: bool) {
        if now_ms.saturating_sub(self.since_ms) >= window_ms {
            *self = CallWindow { since_ms: now_ms, ..CallWindow::default() };
        }
        self.calls = self.calls.saturating_add(1);
        self.bad = self.bad.saturating_add(u32::from(bad));
    }

    fn is_bad(&self, policy: &CircuitBreakerPolicy) -> bool {
        let (calls, bad) = (u64::from(self.calls), u64::from(self.bad));
        self.calls >= policy.min_window_calls.max(1)
            && bad * 100 >= u64::from(policy.failures_percent) * calls
    }
}

fn earliest(probes: &[Probe]) -> u64 {
    probes.iter().map(|probe| probe.until_ms).min().unwrap_or(0)
}

/// What a call has that may go, until it has its response. A probe whose caller leaves makes room for another.
#[must_use = "a probe counts for as long as its permit lives"]
pub(crate) struct Permit<'a> {
    breaker: &'a Breaker,
    probe: Option<u64>,
}

impl<'a> Permit<'a> {
    /// For a call that no breaker holds back.
    pub(crate) fn always(breaker: &'a Breaker) -> Self {
        Permit { breaker, probe: None }
    }

    /// Whether the call tries for all others: then it should not wait in line, where it learns nothing.
    pub(crate) fn is_probe(&self) -> bool {
        self.probe.is_some()
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let Some(ours) = self.probe else { return };
        self.breaker.inner.update(|inner| match &mut inner.phase {
            BreakerPhase::HalfOpen { probes, .. } => {
                probes.retain(|probe| probe.id != ours);
                Some(())
            }
            BreakerPhase::Closed | BreakerPhase::Open { .. } => None,
        });
    }
}
