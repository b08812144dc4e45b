//! Since when cancelled jobs have been seen to run on.

use std::collections::BTreeMap;
use std::sync::Mutex;

use fencehold_core::Token;
use fencehold_core::job::JobId;

use crate::locked;

/// Attempts that were cancelled and go on, each with the moment at which it was first seen.
#[derive(Debug, Default)]
pub(crate) struct Cancelled {
    since_ms: Mutex<BTreeMap<AttemptKey, u64>>,
}

/// A job, and the token of its attempt.
type AttemptKey = (JobId, Token);
/// Namespace and queue.
type QueueKey = [String; 2];

impl Cancelled {
    /// Notes what was found now, forgets the rest, and says of each queue how many there are, and the longest time.
    pub(crate) fn seen(
        &self,
        now_ms: u64,
        found: Vec<(AttemptKey, QueueKey)>,
    ) -> BTreeMap<QueueKey, (u64, u64)> {
        let mut since_ms = locked(&self.since_ms);
        let before = std::mem::take(&mut *since_ms);
        let mut of_queues = BTreeMap::new();
        for (attempt, place) in found {
            let first_ms = before.get(&attempt).copied().unwrap_or(now_ms);
            since_ms.insert(attempt, first_ms);
            let (count, longest_ms) = of_queues.entry(place).or_insert((0, 0));
            *count += 1;
            *longest_ms = u64::max(*longest_ms, now_ms.saturating_sub(first_ms));
        }
        of_queues
    }
}
