//! How many jobs are worth claiming ahead.
//!
//! A prefetched job is one that no other worker can run. So only as many are claimed ahead as the slots will have
//! begun by the time that the next two claims are answered: many where jobs are short, none where they are long. More are asked for
//! when half of them are gone, so that a claim is worth its trip and the other half bridges it.

/// The share of a new sample in the running means: an eighth. Of the work, a thirty-second: there are many more samples, and most of
/// short work are 0, for the clock counts whole milliseconds.
const SHARE_OF_TRIP: u64 = 8;
const SHARE_OF_WORK: u64 = 32;
/// Means are kept in this part of a millisecond.
const PARTS: u64 = 1_024;
/// Nothing is taken to be shorter than this: about 16 µs.
const WORK_MIN: u64 = PARTS / 64;
const TRIP_MIN: u64 = PARTS / 2;

/// The pace of the work and of the store, as running means.
pub(super) struct PrefetchPace {
    most: usize,
    slots: usize,
    work: Option<u64>,
    trip: u64,
    /// A job lay on the shelf for too long: claim nothing ahead until another job has ended.
    stalled: bool,
}

impl PrefetchPace {
    pub(super) fn new(slots: usize, most: usize) -> Self {
        PrefetchPace { most, slots, work: None, trip: PARTS, stalled: false }
    }

    /// A job took so long, from the start of its handler to its end.
    pub(super) fn saw_work(&mut self, work_ms: u64) {
        self.stalled = false;
        // The first is not believed to be nothing.
        let first = parts(work_ms).max(PARTS / 2);
        let mixed = |mean| mixed(mean, work_ms, SHARE_OF_WORK).max(WORK_MIN);
        self.work = Some(self.work.map_or(first, mixed));
    }

    /// A claim that did not have to wait for jobs was answered after so long.
    pub(super) fn saw_trip(&mut self, trip_ms: u64) {
        self.trip = mixed(self.trip, trip_ms, SHARE_OF_TRIP).max(TRIP_MIN);
    }

    /// A job has lain on the shelf for too long.
    pub(super) fn stalled(&mut self) {
        self.stalled = true;
    }

    /// How many jobs to have on the shelf.
    pub(super) fn ahead(&self) -> usize {
        let Some(work) = self.work.filter(|_| !self.stalled) else { return 0 };
        let slots = u64::try_from(self.slots).unwrap_or(u64::MAX);
        // To the nearest: running means never quite get there.
        let begun = slots.saturating_mul(self.trip).saturating_mul(2).saturating_add(work / 2) / work.max(1);
        usize::try_from(begun).unwrap_or(usize::MAX).min(self.most)
    }
}

fn parts(ms: u64) -> u64 {
    ms.saturating_mul(PARTS)
}

fn mixed(mean: u64, sample_ms: u64, share: u64) -> u64 {
    let sample = parts(sample_ms).min(u64::MAX / share);
    (mean.min(u64::MAX / share) * (share - 1) + sample) / share
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_are_claimed_ahead_and_long_ones_are_not() {
        let mut prefetch_pace = PrefetchPace::new(8, 100);
        assert_eq!(prefetch_pace.ahead(), 0, "nothing is known yet");
        for _ in 0..200 {
            prefetch_pace.saw_work(1);
            prefetch_pace.saw_trip(2);
        }
        assert_eq!(prefetch_pace.ahead(), 32, "as much as the slots take up in two trips");
        for _ in 0..200 {
            prefetch_pace.saw_work(1_000);
        }
        assert_eq!(prefetch_pace.ahead(), 0);
        for nth in 0..1_000 {
            // A quarter of a millisecond, by a clock of whole ones.
            prefetch_pace.saw_work(u64::from(nth % 4 == 0));
            prefetch_pace.saw_trip(1);
        }
        assert!((55..=75).contains(&prefetch_pace.ahead()), "{}", prefetch_pace.ahead());
        for _ in 0..1_000 {
            prefetch_pace.saw_work(0);
        }
        assert_eq!(prefetch_pace.ahead(), 100, "as many as may be");
    }

    #[test]
    fn after_a_stall_nothing_is_claimed_ahead_until_a_job_has_ended() {
        let mut prefetch_pace = PrefetchPace::new(8, 16);
        prefetch_pace.saw_work(0);
        assert!(prefetch_pace.ahead() > 0);
        prefetch_pace.stalled();
        assert_eq!(prefetch_pace.ahead(), 0);
        prefetch_pace.saw_work(0);
        assert!(prefetch_pace.ahead() > 0);
    }

    #[test]
    fn nothing_overflows() {
        let mut prefetch_pace = PrefetchPace::new(usize::MAX, usize::MAX);
        for _ in 0..3 {
            prefetch_pace.saw_work(u64::MAX);
            prefetch_pace.saw_trip(u64::MAX);
            prefetch_pace.ahead();
        }
    }
}
