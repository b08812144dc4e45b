//! What a store measures of itself, for monitoring. Nothing here decides anything.
//!
//! Nouns: a [`Counter`] only grows; a [`Histogram`] counts values by their size, in buckets that are fixed when it is made.
//! All are atomics, so that measuring costs a store's one thread next to nothing, and reading costs it nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use fencehold_core::job::{AttemptOutcome, JobState};
use fencehold_core::lease::{LeaseOutcome, LeaseRecord};
use fencehold_core::{Event, EventData, Refusal};

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

    /// At least so many: for a count that is kept elsewhere.
    pub fn raise_to(&self, count: u64) {
        self.0.fetch_max(count, Ordering::Relaxed);
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

/// What is known of what happens in a store.
#[derive(Debug)]
pub struct StoreMetrics {
    /// What happened: in the engine or through the handle since it was opened; on PostgreSQL in all of the store, as the database counts.
    pub facts: EventCounts,
    /// What the engine has measured, where it runs in this process.
    pub engine: Option<EngineMetrics>,
}

/// What the engine behind a store has measured since it was opened.
#[derive(Debug)]
pub struct EngineMetrics {
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

impl Default for EngineMetrics {
    fn default() -> Self {
        EngineMetrics {
            batch: Histogram::new(BATCHES),
            synced_us: Histogram::new(MICROSECONDS),
            unsynced_us: Histogram::new(MICROSECONDS),
            disk_us: Histogram::new(MICROSECONDS),
            slack_percent: Histogram::new(PERCENT),
            claim_slack_percent: Histogram::new(PERCENT),
        }
    }
}

impl Default for StoreMetrics {
    /// Of an engine.
    fn default() -> Self {
        StoreMetrics { facts: EventCounts::default(), engine: Some(EngineMetrics::default()) }
    }
}

impl StoreMetrics {
    /// Of a store without an engine: what happened is counted, and nothing is measured.
    pub fn counts_only() -> Self {
        StoreMetrics { facts: EventCounts::default(), engine: None }
    }

    /// Notes a renewal of a hold that had this much of its ttl left.
    pub fn renewed(&self, left_ms: u64, ttl_ms: u64) {
        if let Some(engine) = &self.engine {
            slack(&engine.slack_percent, left_ms, ttl_ms);
        }
    }

    /// Notes a renewal of a claim that had this much of its ttl left.
    pub fn claim_renewed(&self, left_ms: u64, ttl_ms: u64) {
        if let Some(engine) = &self.engine {
            slack(&engine.claim_slack_percent, left_ms, ttl_ms);
        }
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
    /// Which events these are. Held while counts change, and while they are read together.
    counted: Mutex<Option<CountedEvents>>,
}

/// The events that counts stand for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CountedEvents {
    /// The last event before the first that is counted.
    pub after_seq: u64,
    /// The last that is counted.
    pub to_seq: u64,
}

impl EventCounts {
    /// Reads counts that belong together, with the events that they stand for. `None`: the store keeps no events, or events with lower numbers
    /// are still to come.
    pub fn together<T>(&self, read: impl FnOnce(Option<CountedEvents>) -> T) -> T {
        read(*self.counted.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Goes on counting after an event. Where others have written events since this counted the last one, its counts stand for none.
    pub fn go_on_after(&self, seq: u64) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        *counted = match (*counted, self.has_counts()) {
            (Some(known), _) if known.to_seq == seq => Some(known),
            (_, false) => Some(CountedEvents { after_seq: seq, to_seq: seq }),
            (_, true) => None,
        };
    }

    fn has_counts(&self) -> bool {
        let EventCounts {
            granted,
            ended,
            stale_writes_blocked,
            rewound,
            enqueued,
            claimed,
            attempts,
            quarantined,
            fired,
            ..
        } = self;
        let alone = [granted, stale_writes_blocked, rewound, enqueued, claimed, quarantined, fired];
        alone.into_iter().chain(ended).chain(attempts).any(|counter| counter.get() > 0)
    }

    /// Counts events that were kept.
    pub fn count_events<'a>(&self, events: impl IntoIterator<Item = &'a Event>) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        for event in events {
            self.count(&event.data);
            if let Some(counted) = &mut *counted {
                counted.to_seq = event.seq;
            }
        }
    }

    /// Takes over what a database has counted of all events up to one, unless more is known already. `None`: which one it is cannot be said.
    pub fn take_over(&self, to_seq: Option<u64>, take: impl FnOnce(&EventCounts)) {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if counted.zip(to_seq).is_some_and(|(known, to_seq)| known.to_seq > to_seq) {
            return;
        }
        take(self);
        *counted = to_seq.map(|to_seq| CountedEvents { after_seq: 0, to_seq });
    }

    /// Counts what an event says.
    pub fn count(&self, fact: &EventData) {
        match fact {
            EventData::LeaseAcquired { .. } => self.granted.add_one(),
            EventData::LeaseEnded { outcome: how, .. } => self.lease_ended(*how, 1),
            // A holder that released knows that its lease is over.
            fact if fact.is_renewal_after_release() => {}
            EventData::StaleWriteBlocked { .. } => self.stale_writes_blocked.add_one(),
            EventData::StoreRewound { .. } => self.rewound.add_one(),
            EventData::JobEnqueued { .. } => self.enqueued.add_one(),
            EventData::JobClaimed { .. } => self.claimed.add_one(),
            EventData::JobAttemptEnded { outcome: how, state, .. } => {
                if let Some(counter) = self.attempts_ended(*how) {
                    counter.add_one();
                }
                if *state == JobState::Quarantined {
                    self.quarantined.add_one();
                }
            }
            EventData::ScheduleFired { .. } => self.fired.add_one(),
            _ => {}
        }
    }

    /// Counts so many leases that ended like this.
    pub fn lease_ended(&self, outcome: LeaseOutcome, count: u64) {
        if let Some(counter) = self.leases_ended(outcome) {
            counter.add(count);
        }
    }

    /// Counts what the new record of a key says and the one before did not: for stores that write records and keep no events.
    pub fn count_written(&self, before: &LeaseRecord, after: &LeaseRecord) {
        let newest = before.endings().last().map(|ending| ending.token);
        for ending in after
            .endings()
            .iter()
            .filter(|ending| newest.is_none_or(|newest| ending.token > newest))
        {
            self.lease_ended(ending.outcome, 1);
        }
        if after.hold.is_some() && (before.hold.is_none() || after.counter > before.counter) {
            self.granted.add_one();
        }
    }

    /// Counts what a refusal says of a holder that came too late, or of a store that was rewound.
    pub fn count_refusal(&self, refusal: &Refusal) {
        match refusal {
            // A repeated release is answered as the first: this is a renewal that its own release has overtaken.
            Refusal::Lost { outcome: Some(LeaseOutcome::Released), .. } => {}
            Refusal::Lost { .. } => self.stale_writes_blocked.add_one(),
            Refusal::StoreRewound { .. } => self.rewound.add_one(),
            _ => {}
        }
    }

    /// The counter of leases that ended like this.
    pub fn leases_ended(&self, outcome: LeaseOutcome) -> Option<&Counter> {
        self.ended.get(LeaseOutcome::ALL.iter().position(|one| *one == outcome)?)
    }

    /// The counter of attempts that ended like this.
    pub fn attempts_ended(&self, outcome: AttemptOutcome) -> Option<&Counter> {
        self.attempts.get(AttemptOutcome::ALL.iter().position(|one| *one == outcome)?)
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
        assert_eq!(measures.engine.unwrap().slack_percent.read().1, 66);
    }
}
