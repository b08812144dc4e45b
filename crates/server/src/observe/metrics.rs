//! What the server counts of what passes through it. What happens inside the store is counted there.

use fencehold_contract::StoreError;
use fencehold_contract::metrics::{Counter, Histogram, MICROSECONDS};
use fencehold_core::Refusal;

/// Ends of buckets for waits, in milliseconds.
const WAIT_MS: &[u64] = &[1, 5, 25, 100, 500, 1_000, 5_000, 15_000, 60_000, 300_000, 900_000, 3_600_000];

/// How a request ended, as far as an operator cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RequestEnd {
    Done,
    Refused,
    Denied,
    Limited,
    Unavailable,
    Failed,
}

impl RequestEnd {
    /// What they are called, in their order.
    pub(crate) const NAMES: [&str; 6] = ["ok", "refused", "denied", "limited", "unavailable", "failed"];

    pub(crate) fn of<T>(outcome: &Result<T, StoreError>) -> RequestEnd {
        match outcome {
            Ok(_) => RequestEnd::Done,
            Err(StoreError::Forbidden { .. }) => RequestEnd::Denied,
            Err(StoreError::LimitReached { .. }) => RequestEnd::Limited,
            Err(StoreError::Unavailable { .. } | StoreError::OutcomeUnknown { .. }) => {
                RequestEnd::Unavailable
            }
            Err(StoreError::Unusable { .. }) => RequestEnd::Failed,
            Err(_) => RequestEnd::Refused,
        }
    }
}

/// The operations that are distinguished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperationKind {
    Acquire,
    Renew,
    Release,
    Force,
    Look,
    Enqueue,
    Claim,
    Report,
}

impl OperationKind {
    /// What they are called, in their order.
    pub(crate) const NAMES: [&str; 8] =
        ["acquire", "renew", "release", "admin", "read", "enqueue", "claim", "report"];
}

/// The counts.
#[derive(Debug)]
pub(crate) struct Metrics {
    /// By kind, then by ending.
    pub(crate) requests: [[Counter; RequestEnd::NAMES.len()]; OperationKind::NAMES.len()],
    /// By kind: how long the store took, waits in line apart.
    pub(crate) took_us: [Histogram; OperationKind::NAMES.len()],
    /// Acquisitions that found the key held.
    pub(crate) contended: Counter,
    /// How long those that were granted stood in line.
    pub(crate) waited_ms: Histogram,
    pub(crate) renewed: Counter,
    pub(crate) renewals_refused: Counter,
    pub(crate) renewals_failed: Counter,
    /// Holds shown that are not the holder's.
    pub(crate) wrong_holds: Counter,
    pub(crate) dedup_hits: Counter,
    /// Operations that were begun before, and effects that were recorded before.
    pub(crate) operation_hits: Counter,
    pub(crate) effect_hits: Counter,
    pub(crate) strangers: Counter,
    /// Requests over a caller's pace, renewals apart.
    pub(crate) over_pace: Counter,
    pub(crate) renewals_over_pace: Counter,
    /// Requests that found a lane's line full, or waited too long in it.
    pub(crate) shed: Counter,
    pub(crate) renewals_shed: Counter,
    /// Requests that would have waited, and found no seat or no memory for that.
    pub(crate) waiting_refused: Counter,
    pub(crate) connections_turned_away: Counter,
    pub(crate) bodies_too_large: Counter,
    pub(crate) bodies_too_slow: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            requests: Default::default(),
            took_us: std::array::from_fn(|_| Histogram::new(MICROSECONDS)),
            contended: Counter::default(),
            waited_ms: Histogram::new(WAIT_MS),
            renewed: Counter::default(),
            renewals_refused: Counter::default(),
            renewals_failed: Counter::default(),
            wrong_holds: Counter::default(),
            dedup_hits: Counter::default(),
            operation_hits: Counter::default(),
            effect_hits: Counter::default(),
            strangers: Counter::default(),
            over_pace: Counter::default(),
            renewals_over_pace: Counter::default(),
            shed: Counter::default(),
            renewals_shed: Counter::default(),
            waiting_refused: Counter::default(),
            connections_turned_away: Counter::default(),
            bodies_too_large: Counter::default(),
            bodies_too_slow: Counter::default(),
        }
    }
}

impl Metrics {
    pub(crate) fn ended<T>(&self, kind: OperationKind, outcome: &Result<T, StoreError>) {
        if let Some(counter) = self
            .requests
            .get(kind as usize)
            .and_then(|row| row.get(RequestEnd::of(outcome) as usize))
        {
            counter.add_one();
        }
    }

    pub(crate) fn took(&self, kind: OperationKind, us: u64) {
        if let Some(histogram) = self.took_us.get(kind as usize) {
            histogram.record(us);
        }
    }

    /// Counts the answers to a batch of renewals.
    pub(crate) fn renewals<T, R>(&self, answers: &[Result<T, R>], wrong_hold: impl Fn(&R) -> bool) {
        let renewed = answers.iter().filter(|answer| answer.is_ok()).count();
        self.renewed.add(renewed as u64);
        self.renewals_refused.add((answers.len() - renewed) as u64);
        self.forged(answers, wrong_hold);
    }

    /// Counts the holds of a batch that were shown and are not the holder's.
    pub(crate) fn forged<T, R>(&self, answers: &[Result<T, R>], wrong_hold: impl Fn(&R) -> bool) {
        let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
        self.wrong_holds
            .add(refused.filter(|refusal| wrong_hold(refusal)).count() as u64);
    }
}

/// Whether a refusal of a lease says that someone showed another's token with a wrong hold id.
pub(crate) fn is_wrong_hold(refusal: &Refusal) -> bool {
    matches!(refusal, Refusal::WrongHoldId { .. })
}
