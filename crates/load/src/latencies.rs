//! Latencies in buckets that grow with them: however many there are, they take a few kilobytes, and those of several
//! processes can be added up.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Buckets per power of two, as bits: each is at most 1/128 wide, so that a percentile is off by less than 0.8 %.
const BITS: u32 = 7;

/// How long calls took.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Latencies {
    /// How many calls fell into each bucket.
    counts: Vec<u64>,
    max_ns: u64,
}

impl Latencies {
    /// Adds one call.
    pub fn add(&mut self, latency: Duration) {
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let bucket = bucket(ns);
        if self.counts.len() <= bucket {
            self.counts.resize(bucket + 1, 0);
        }
        self.counts[bucket] += 1;
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds the calls of another.
    pub fn merge(&mut self, other: &Latencies) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.max_ns = self.max_ns.max(other.max_ns);
    }

    /// How many calls.
    pub fn len(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Whether there was none.
    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    /// The latency that this many of a hundred calls did not exceed, in microseconds; 0 without calls.
    pub fn percentile_us(&self, percent: f64) -> f64 {
        let rank = (self.len() as f64 * percent / 100.0).ceil().max(1.0);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen as f64 >= rank
        });
        found.map_or(0.0, |bucket| end_ns(bucket).min(self.max_ns) as f64 / 1e3)
    }

    /// The longest, in microseconds; 0 without calls.
    pub fn max_us(&self) -> f64 {
        self.max_ns as f64 / 1e3
    }
}

/// Up to 2^(BITS + 1) ns each has a bucket of its own; above, each power of two has 2^BITS of them.
fn bucket(ns: u64) -> usize {
    let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(BITS + 1);
    let bucket = (u64::from(shift) << BITS) + (ns >> shift);
    usize::try_from(bucket).unwrap_or(usize::MAX)
}

/// The longest latency of a bucket.
fn end_ns(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket >> BITS).saturating_sub(1);
    let start = bucket - (shift << BITS);
    // The last bucket ends where the numbers do.
    (start << shift) + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_the_latency_that_so_many_did_not_exceed() {
        let mut latencies = Latencies::default();
        for ms in (1..=100).rev() {
            latencies.add(Duration::from_millis(ms));
        }
        for (percent, exact_us) in [(1.0, 1e3), (50.0, 50e3), (99.0, 99e3)] {
            let found = latencies.percentile_us(percent);
            assert!((exact_us..exact_us * 1.008).contains(&found), "{percent}: {found}");
        }
        let most = (latencies.percentile_us(100.0), latencies.max_us(), latencies.len());
        assert_eq!(most, (100e3, 100e3, 100));
        let none = Latencies::default();
        assert_eq!((none.percentile_us(99.0), none.max_us(), none.is_empty()), (0.0, 0.0, true));
    }

    #[test]
    fn every_latency_lies_in_a_bucket_less_than_a_hundredth_wide() {
        let around = |ns: u64| [ns.saturating_sub(1), ns, ns.saturating_add(1)];
        let all = (0..64).flat_map(|bit| around(1 << bit)).chain([0, u64::MAX]);
        for ns in all {
            let (bucket, end) = (bucket(ns), end_ns(bucket(ns)));
            assert!(ns <= end && (end - ns) as f64 <= ns as f64 / 128.0, "{ns}: {bucket}, to {end}");
            assert!(bucket == 0 || end_ns(bucket - 1) < ns, "{ns} belongs into an earlier one than {bucket}");
        }
    }

    #[test]
    fn merging_is_adding_all_to_one() {
        let (mut all, mut one, mut other) =
            (Latencies::default(), Latencies::default(), Latencies::default());
        for us in 1..1_000 {
            let latency = Duration::from_micros(us * us);
            all.add(latency);
            if us % 3 == 0 { one.add(latency) } else { other.add(latency) }
        }
        one.merge(&other);
        assert_eq!(one, all);
    }
}
