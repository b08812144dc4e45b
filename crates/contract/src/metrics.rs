//! What a store measures of itself, for monitoring. Nothing here decides anything.
//!
//! Nouns: a [`Counter`] only grows; a [`Histogram`] counts values by their size, in buckets that are fixed when it is made.
//! All are atomics, so that measuring costs a store's one thread next to nothing, and reading costs it nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use fencehold_core::EventData;
use fencehold_core::job::{AttemptOutcome, JobState};
use fencehold_core::lease::LeaseOutcome;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn add_one(&self) {
        self.add(1);
    }

    /// So many more.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// How many so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// How many values there were of which size.
#[derive(Debug)]
pub struct Histogram {
    /// The greatest value of each bucket but the last, which has no end.
    bounds: &'static [u64],
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

impl Histogram {
    /// Buckets that end at these values, in ascending order, and one for all that is greater.
    pub fn new(bounds: &'static [u64]) -> Self {
        let counts = std::iter::repeat_with(AtomicU64::default).take(bounds.len() + 1).collect();
        Histogram { bounds, counts, sum: AtomicU64::new(0) }
    }

    /// Counts a value.
    pub fn record(&self, value: u64) {
        let at = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(value, Ordering::Relaxed);
        }
    }

    /// Each bucket's end (`None`: it has none) with how many values were no greater, and the sum of all values.
    pub fn read(&self) -> (Vec<(Option<u64>, u64)>, u64) {
        let mut so_far = 0;
        let ends = self.bounds.iter().copied().map(Some).chain([None]);
        let buckets = ends.zip(&self.counts).map(|(end, count)| {
            so_far += count.load(Ordering::Relaxed);
            (end, so_far)
        });
        (buckets.collect(), self.sum.load(Ordering::Relaxed))
    }
}

/// Ends of buckets for times, in microseconds: from a fast disk's write to a wait of a minute.
pub const MICROSECONDS: &[u64] = &[
    100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 10_000_000, 60_000_000,
];
const BATCHES: &[u64] = &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024, 2_048, 4_096];
const PERCENT: &[u64] = &[5, 10, 20, 30, 40, 50, 60, 70, 80, 90];

/// What the engine behind a store has seen since it was opened.
#[derive(Debug)]
pub struct StoreMetrics {
    /// What happened.
    pub facts: EventCounts,
    /// How many requests were decided together.
    pub batch: Histogram,
    /// How long batches took to be kept that waited for the disk, in microseconds.
    pub synced_us: Histogram,
    /// How long batches took that did not wait for it: renewals alone.
    pub unsynced_us: Histogram,
    /// How long the disk took to confirm a batch, in microseconds: a part of the time that keeping it took.
    pub disk_us: Histogram,
    /// How much of its ttl a hold had left when it was renewed, in per cent.
    pub slack_percent: Histogram,
    /// The same of claims of jobs.
    pub claim_slack_percent: Histogram,
}

impl Default for StoreMetrics {
    fn default() -> Self {
        StoreMetrics {
            facts: EventCounts::default(),
            batch: Histogram::new(BATCHES),
            synced_us: Histogram::new(MICROSECONDS),
            unsynced_us: Histogram::new(MICROSECONDS),
            disk_us: Histogram::new(MICROSECONDS),
            slack_percent: Histogram::new(PERCENT),
            claim_slack_percent: Histogram::new(PERCENT),
        }
    }
}

impl StoreMetrics {
    /// Notes a renewal of a hold that had this much of its ttl left.
    pub fn renewed(&self, left_ms: u64, ttl_ms: u64) {
        slack(&self.slack_percent, left_ms, ttl_ms);
    }

    /// Notes a renewal of a claim that had this much of its ttl left.
    pub fn claim_renewed(&self, left_ms: u64, ttl_ms: u64) {
        slack(&self.claim_slack_percent, left_ms, ttl_ms);
    }
}

fn slack(of: &Histogram, left_ms: u64, ttl_ms: u64) {
    if let Some(percent) = left_ms.saturating_mul(100).checked_div(ttl_ms) {
        of.record(percent.min(100));
    }
}

/// How often each thing happened.
#[derive(Debug, Default)]
pub struct EventCounts {
    /// Leases were granted.
    pub granted: Counter,
    /// Leases ended, by how: in the order of [`LeaseOutcome::ALL`].
    pub ended: [Counter; LeaseOutcome::ALL.len()],
    /// A holder whose hold was over tried to act.
    pub stale_writes_blocked: Counter,
    /// A token was shown that the store never gave.
    pub rewound: Counter,
    /// Jobs were enqueued.
    pub enqueued: Counter,
    /// Attempts began.
    pub claimed: Counter,
    /// Attempts ended, by how: in the order of [`AttemptOutcome::ALL`].
    pub attempts: [Counter; AttemptOutcome::ALL.len()],
    /// Jobs were set aside because they killed too many holders.
    pub quarantined: Counter,
    /// Schedules fired.
    pub fired: Counter,
}

impl EventCounts {
    /// Counts what an event says.
    pub fn count(&self, fact: &EventData) {
        match fact {
            EventData::LeaseAcquired { .. } => self.granted.add_one(),
            EventData::LeaseEnded { outcome: how, .. } => {
                add_at(&self.ended, LeaseOutcome::ALL.iter().position(|one| one == how));
            }
            EventData::StaleWriteBlocked { .. } => self.stale_writes_blocked.add_one(),
            EventData::StoreRewound { .. } => self.rewound.add_one(),
            EventData::JobEnqueued { .. } => self.enqueued.add_one(),
            EventData::JobClaimed { .. } => self.claimed.add_one(),
            EventData::JobAttemptEnded { outcome: how, state, .. } => {
                add_at(&self.attempts, AttemptOutcome::ALL.iter().position(|one| one == how));
                if *state == JobState::Quarantined {
                    self.quarantined.add_one();
                }
            }
            EventData::ScheduleFired { .. } => self.fired.add_one(),
            _ => {}
        }
    }
}

fn add_at(counters: &[Counter], at: Option<usize>) {
    if let Some(counter) = at.and_then(|at| counters.get(at)) {
        counter.add_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_in_the_bucket_that_ends_at_or_after_them() {
        let histogram = Histogram::new(&[10, 20]);
        for value in [0, 10, 11, 20, 21, 1_000] {
            histogram.record(value);
        }
        let (buckets, sum) = histogram.read();
        assert_eq!(buckets, [(Some(10), 2), (Some(20), 4), (None, 6)], "each counts those before it too");
        assert_eq!(sum, 1_062);
    }

    #[test]
    fn slack_is_a_share_of_the_ttl() {
        let measures = StoreMetrics::default();
        measures.renewed(20_000, 30_000);
        measures.renewed(1, 0);
        assert_eq!(measures.slack_percent.read().1, 66);
    }
}
