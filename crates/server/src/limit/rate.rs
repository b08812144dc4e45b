//! How many requests a second one caller may send: a bucket that fills at that rate and holds two seconds' worth.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use crate::locked;

/// How many seconds of silence may be made up for at once.
const BURST_SECONDS: u64 = 2;
/// One request, in the thousandths in which buckets are filled.
const ONE: u64 = 1_000;
/// Buckets beyond this number make the full ones be forgotten, which changes nothing for anybody.
const BUCKETS_KEPT: usize = 4_096;

/// The pace of every caller.
#[derive(Debug)]
pub(crate) struct RateLimiter<Who> {
    /// 0: as many as they like.
    per_second: u64,
    buckets: Mutex<HashMap<Who, RateBucket>>,
}

#[derive(Clone, Copy, Debug)]
struct RateBucket {
    thousandths: u64,
    filled_ms: u64,
}

impl<Who: Clone + Eq + Hash> RateLimiter<Who> {
    /// So many a second for each; 0: no limit.
    pub(crate) fn new(per_second: u64) -> Self {
        RateLimiter { per_second, buckets: Mutex::default() }
    }

    /// Takes one request's worth. `Err`: in how many milliseconds there is one.
    pub(crate) fn take(&self, who: &Who, now_ms: u64) -> Result<(), u64> {
        if self.per_second == 0 {
            return Ok(());
        }
        let full = self.per_second.saturating_mul(BURST_SECONDS * ONE);
        let mut buckets = locked(&self.buckets);
        if buckets.len() >= BUCKETS_KEPT && !buckets.contains_key(who) {
            buckets.retain(|_, bucket| bucket.at(now_ms, self.per_second, full).thousandths < full);
        }
        let bucket = buckets
            .entry(who.clone())
            .or_insert(RateBucket { thousandths: full, filled_ms: now_ms });
        *bucket = bucket.at(now_ms, self.per_second, full);
        match bucket.thousandths.checked_sub(ONE) {
            Some(rest) => {
                bucket.thousandths = rest;
                Ok(())
            }
            None => Err((ONE - bucket.thousandths).div_ceil(self.per_second)),
        }
    }
}

impl<Who: Eq + Hash> RateLimiter<Who> {
    /// How many requests of what may come at once the busiest caller has used up, and how many those are. `None`: there is
    /// no limit.
    pub(crate) fn busiest(&self, now_ms: u64) -> Option<(u64, u64)> {
        let full = self.per_second.checked_mul(BURST_SECONDS * ONE).filter(|full| *full > 0)?;
        let buckets = locked(&self.buckets);
        let left = buckets
            .values()
            .map(|bucket| bucket.at(now_ms, self.per_second, full).thousandths)
            .min();
        Some((full.saturating_sub(left.unwrap_or(full)) / ONE, full / ONE))
    }
}

impl RateBucket {
    fn at(self, now_ms: u64, per_second: u64, full: u64) -> RateBucket {
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        let thousandths = self.thousandths.saturating_add(passed_ms.saturating_mul(per_second)).min(full);
        RateBucket { thousandths, filled_ms: self.filled_ms.max(now_ms) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_let_through_and_then_the_pace_holds() {
        let pace = RateLimiter::new(10);
        for _ in 0..20 {
            assert_eq!(pace.take(&"a", 5_000), Ok(()));
        }
        assert_eq!(pace.take(&"a", 5_000), Err(100));
        assert_eq!(pace.take(&"a", 5_099), Err(1));
        assert_eq!(pace.take(&"b", 5_000), Ok(()), "another's pace is another's");
        assert_eq!(pace.take(&"a", 5_100), Ok(()));
        assert_eq!(pace.take(&"a", 5_100), Err(100));
        let passed = (0..1_000).filter(|ms| pace.take(&"a", 5_100 + ms).is_ok()).count();
        assert_eq!(passed, 9);
    }

    #[test]
    fn without_a_limit_nobody_waits_and_nothing_is_remembered() {
        let pace = RateLimiter::new(0);
        assert!((0..1_000).all(|_| pace.take(&"a", 0).is_ok()));
        assert!(pace.buckets.lock().unwrap().is_empty());
        assert_eq!(pace.busiest(0), None);
    }

    #[test]
    fn the_busiest_caller_shows_how_near_the_limit_is() {
        let pace = RateLimiter::new(10);
        assert_eq!(pace.busiest(0), Some((0, 20)));
        for _ in 0..15 {
            pace.take(&"a", 0).unwrap();
        }
        pace.take(&"b", 0).unwrap();
        assert_eq!(pace.busiest(0), Some((15, 20)));
        assert_eq!(pace.busiest(1_000), Some((5, 20)), "silence makes up for it");
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_gives_nothing_away() {
        let pace = RateLimiter::new(1);
        assert!(pace.take(&"a", 9_000).is_ok() && pace.take(&"a", 9_000).is_ok());
        assert!(pace.take(&"a", 1_000).is_err());
        assert!(pace.take(&"a", 9_999).is_err());
        assert!(pace.take(&"a", 10_000).is_ok());
    }

    #[test]
    fn strangers_do_not_make_memory_grow() {
        let pace = RateLimiter::new(1);
        for who in 0..100_000_u64 {
            pace.take(&who, who * 2_000).unwrap();
        }
        assert!(pace.buckets.lock().unwrap().len() <= BUCKETS_KEPT + 1);
    }
}
