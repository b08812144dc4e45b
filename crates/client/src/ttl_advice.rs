//! What ttl would suit, from what was seen.
//!
//! A lease is renewed for as long as its work runs, so a ttl need not cover the work. What a longer ttl buys is time
//! without renewals: a lease whose ttl is the advised one outlives 99 of 100 pieces of work even if not one renewal
//! gets through, because the network is cut or the store is away. What it costs is that others wait that much longer
//! when the holder dies. So the advice is the ttl at which renewals stop mattering; below it, a lease lives by its
//! renewals, which is fine where the store is near and the waiting dear.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use fencehold_core::Key;
use fencehold_core::limits::TTL_MS_MAX;

use crate::time::ms;
use crate::wake::lock;

/// How many keys are remembered; the one that was used longest ago goes first.
const KEYS_MAX: usize = 1_024;
/// How many of a key's last pieces of work are remembered.
const WORK_MAX: usize = 128;
/// How many of the last round trips are remembered.
const TRIPS_MAX: usize = 512;
/// A warning needs at least this much to go on, and is considered once for so many pieces of work: working out the
/// advice for each would cost more than the work of some.
const SAMPLES_TO_WARN: u64 = 10;
/// The least margin.
const MARGIN_MS_MIN: u64 = 500;

/// A ttl, and what it is made of.
///
/// The suggestion is the P99 of the work, plus the P99 of a round trip to the store, plus a margin. Leases are renewed,
/// so a shorter ttl is not wrong: it means that the lease lives by its renewals. With the suggested one, 99 of 100
/// pieces of work end in time even if no renewal gets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TtlAdvice {
    /// The sum, within what the store accepts.
    pub suggested_ttl: Duration,
    /// 99 of 100 leases were held for no longer than this before they were given back.
    pub p99_work: Duration,
    /// 99 of 100 answers of the store took no longer than this, time in line not counted.
    pub p99_round_trip: Duration,
    /// A quarter of the two, and no less than half a second.
    pub margin: Duration,
    /// The least time that a renewal ever had left when it came through; little of it means that the ttl is too short
    /// for this store. `None`: nothing was renewed yet.
    pub min_remaining: Option<Duration>,
    /// How many pieces of work the advice rests on.
    pub samples: usize,
}

impl TtlAdvice {
    /// The advice from how long pieces of work took, and how long the store took to answer. `None`: no work was seen.
    ///
    /// ```
    /// use std::time::Duration;
    /// use fencehold::TtlAdvice;
    ///
    /// let (work, trips) = ([Duration::from_secs(8); 100], [Duration::from_millis(20); 10]);
    /// let advice = TtlAdvice::from_samples(&work, &trips, Duration::from_millis(100)).expect("work was seen");
    /// assert_eq!(advice.suggested_ttl, Duration::from_millis(8_020 + 2_005));
    /// ```
    pub fn from_samples(work: &[Duration], round_trips: &[Duration], min_ttl: Duration) -> Option<Self> {
        let all_ms = |times: &[Duration]| times.iter().copied().map(ms).collect();
        TtlAdvice::of(all_ms(work), all_ms(round_trips), ms(min_ttl))
    }

    fn of(work_ms: Vec<u64>, round_trips_ms: Vec<u64>, ttl_ms_min: u64) -> Option<Self> {
        let samples = work_ms.len();
        let work_ms = p99(work_ms)?;
        let trip_ms = p99(round_trips_ms).unwrap_or(0);
        let both_ms = work_ms.saturating_add(trip_ms);
        let margin_ms = (both_ms / 4).max(MARGIN_MS_MIN);
        let ttl_ms = both_ms.saturating_add(margin_ms).clamp(ttl_ms_min, TTL_MS_MAX);
        Some(TtlAdvice {
            suggested_ttl: Duration::from_millis(ttl_ms),
            p99_work: Duration::from_millis(work_ms),
            p99_round_trip: Duration::from_millis(trip_ms),
            margin: Duration::from_millis(margin_ms),
            min_remaining: None,
            samples,
        })
    }
}

/// Remembers what was seen.
pub(crate) struct Advisor {
    ttl_ms_min: u64,
    seen: Mutex<ObservedTimes>,
}

#[derive(Debug, Default)]
struct ObservedTimes {
    by_key: HashMap<Key, WorkTimes>,
    trips_ms: VecDeque<u64>,
    clock: u64,
}

#[derive(Debug, Default)]
struct WorkTimes {
    held_ms: VecDeque<u64>,
    count: u64,
    least_slack_ms: Option<u64>,
    used: u64,
    warned: bool,
}

impl Advisor {
    pub(crate) fn new(ttl_ms_min: u64) -> Self {
        Advisor { ttl_ms_min, seen: Mutex::default() }
    }

    /// The store took so long to answer.
    pub(crate) fn saw_round_trip(&self, trip_ms: u64) {
        remember(&mut lock(&self.seen).trips_ms, trip_ms, TRIPS_MAX);
    }

    /// A renewal came through with so much time left.
    pub(crate) fn saw_slack(&self, key: &Key, slack_ms: u64) {
        let mut seen = lock(&self.seen);
        let work = seen.of(key);
        work.least_slack_ms = Some(work.least_slack_ms.map_or(slack_ms, |least_ms| least_ms.min(slack_ms)));
    }

    /// A lease was held for so long, and given back. Warns, once a key, where its ttl is below the advice.
    pub(crate) fn saw_work(&self, key: &Key, ttl_ms: u64, held_ms: u64) {
        let mut seen = lock(&self.seen);
        let work = seen.of(key);
        remember(&mut work.held_ms, held_ms, WORK_MAX);
        work.count += 1;
        if work.warned || !work.count.is_multiple_of(SAMPLES_TO_WARN) {
            return;
        }
        let Some(advice) = seen.advise(|other| other == key, self.ttl_ms_min) else { return };
        if Duration::from_millis(ttl_ms) >= advice.suggested_ttl {
            return;
        }
        seen.of(key).warned = true;
        drop(seen);
        tracing::warn!(
            %key,
            ttl_ms,
            suggested_ttl_ms = advice.suggested_ttl.as_millis(),
            p99_work_ms = advice.p99_work.as_millis(),
            "the ttl is below the advice: this lease lives by its renewals"
        );
    }

    pub(crate) fn advise(&self, prefix: &str) -> Option<TtlAdvice> {
        lock(&self.seen).advise(|key| key.as_str().starts_with(prefix), self.ttl_ms_min)
    }
}

impl ObservedTimes {
    fn of(&mut self, key: &Key) -> &mut WorkTimes {
        self.clock += 1;
        if self.by_key.len() >= KEYS_MAX
            && !self.by_key.contains_key(key)
            && let Some(oldest) =
                self.by_key.iter().min_by_key(|(_, work)| work.used).map(|(key, _)| key.clone())
        {
            self.by_key.remove(&oldest);
        }
        let work = self.by_key.entry(key.clone()).or_default();
        work.used = self.clock;
        work
    }

    fn advise(&self, wanted: impl Fn(&Key) -> bool, ttl_ms_min: u64) -> Option<TtlAdvice> {
        let of_key = || self.by_key.iter().filter(|(key, _)| wanted(key)).map(|(_, work)| work);
        let held_ms: Vec<u64> = of_key().flat_map(|work| work.held_ms.iter().copied()).collect();
        let trips_ms = self.trips_ms.iter().copied().collect();
        let min_remaining = of_key().filter_map(|work| work.least_slack_ms).min().map(Duration::from_millis);
        Some(TtlAdvice { min_remaining, ..TtlAdvice::of(held_ms, trips_ms, ttl_ms_min)? })
    }
}

fn remember(ring: &mut VecDeque<u64>, value: u64, most: usize) {
    if ring.len() == most {
        ring.pop_front();
    }
    ring.push_back(value);
}

/// The value that 99 of 100 do not exceed (nearest rank).
fn p99(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    let rank = (values.len() * 99).div_ceil(100);
    values.get(rank.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new(name).expect("a key")
    }

    #[test]
    fn the_advice_is_the_work_the_round_trip_and_a_margin() {
        let advisor = Advisor::new(100);
        assert_eq!(advisor.advise("k"), None, "nothing seen, nothing advised");
        for held_ms in 1..=100 {
            advisor.saw_work(&key("k"), 60_000, held_ms * 100);
            advisor.saw_round_trip(held_ms);
        }
        let advice = advisor.advise("k").expect("an advice");
        assert_eq!(advice.p99_work, Duration::from_millis(9_900));
        assert_eq!(advice.p99_round_trip, Duration::from_millis(99));
        assert_eq!(advice.margin, Duration::from_millis(2_499));
        assert_eq!(advice.suggested_ttl, Duration::from_millis(9_900 + 99 + 2_499));
        assert_eq!(advice.samples, 100);
    }

    #[test]
    fn a_prefix_takes_in_every_key_that_starts_with_it() {
        let advisor = Advisor::new(100);
        advisor.saw_work(&key("gpu/0"), 60_000, 10);
        advisor.saw_work(&key("gpu/1"), 60_000, 30);
        advisor.saw_work(&key("cpu/0"), 60_000, 99_999);
        let advice = advisor.advise("gpu/").expect("an advice");
        assert_eq!((advice.samples, advice.p99_work), (2, Duration::from_millis(30)));
        assert_eq!(advice.suggested_ttl, Duration::from_millis(530));
    }

    #[test]
    fn the_least_slack_is_kept_and_memory_is_bounded() {
        let advisor = Advisor::new(100);
        advisor.saw_work(&key("k"), 60_000, 1);
        advisor.saw_slack(&key("k"), 700);
        advisor.saw_slack(&key("k"), 900);
        let slack = advisor.advise("k").and_then(|advice| advice.min_remaining);
        assert_eq!(slack, Some(Duration::from_millis(700)));
        for nth in 0..2 * KEYS_MAX {
            advisor.saw_work(&key(&format!("other/{nth}")), 60_000, 1);
        }
        assert_eq!(lock(&advisor.seen).by_key.len(), KEYS_MAX);
        assert_eq!(advisor.advise("k"), None, "the key that was used longest ago is forgotten");
        for _ in 0..2 * WORK_MAX {
            advisor.saw_work(&key("busy"), 60_000, 5);
        }
        assert_eq!(advisor.advise("busy").map(|advice| advice.samples), Some(WORK_MAX));
    }

    #[test]
    fn the_advice_stays_within_what_a_store_accepts() {
        let advisor = Advisor::new(1_000);
        advisor.saw_work(&key("short"), 60_000, 0);
        advisor.saw_work(&key("long"), 60_000, 10 * TTL_MS_MAX);
        assert_eq!(advisor.advise("short").map(|a| a.suggested_ttl), Some(Duration::from_secs(1)));
        assert_eq!(advisor.advise("long").map(|a| a.suggested_ttl), Some(Duration::from_millis(TTL_MS_MAX)));
    }
}
