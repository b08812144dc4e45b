//! What a handle remembers from one claim to the next: where the jobs of a lane were last found, and whose turn it is among queues.

use std::collections::HashMap;

use fencehold_contract::job::QueueWeight;
use fencehold_core::job::QueueName;

use crate::value::to_sql;

/// For how long a lane is searched only from where jobs were last found: what was committed out of order, or given back by
/// a claim that broke off, lies below, and is found after this time.
const HEAD_TRUSTED_MS: u64 = 1_000;
/// Where another session's snapshot keeps the server from clearing away what was taken, a search of the whole lane takes long: at
/// most one part of so many of the time goes into it, as long as no claim waits for more than so long.
const SEARCH_SHARE: u64 = 20;
const HEAD_TRUSTED_MS_MAX: u64 = 10_000;
/// How far a turn moves the clock of a queue of weight 1: as in `fencehold_core::job::WeightedTurns`.
const STRIDE: u64 = 1 << 20;

/// Losing it costs nothing but time.
#[derive(Debug, Default)]
pub(super) struct ClaimCache {
    heads: HashMap<i32, LaneHead>,
    /// Whose turn it is among queues, by their own clocks.
    clocks: HashMap<(String, String), u64>,
    clock: u64,
}

/// Where the jobs of a lane were last found, and when all of it was last searched, by this machine's clock.
#[derive(Clone, Copy, Debug)]
struct LaneHead {
    arrival: i64,
    searched_ms: u64,
    trusted_ms: u64,
}

impl ClaimCache {
    pub(super) fn trusted_heads(&self, now_ms: u64) -> (Vec<i32>, Vec<i64>) {
        let fresh = |head: &LaneHead| now_ms.saturating_sub(head.searched_ms) < head.trusted_ms;
        self.heads
            .iter()
            .filter(|(_, head)| fresh(head))
            .map(|(lane, head)| (*lane, head.arrival))
            .unzip()
    }

    pub(super) fn note_heads(
        &mut self,
        found: &HashMap<i32, i64>,
        trusted: &[i32],
        now_ms: u64,
        search_ms: u64,
    ) {
        let trusted_ms = search_ms
            .saturating_mul(SEARCH_SHARE)
            .clamp(HEAD_TRUSTED_MS, HEAD_TRUSTED_MS_MAX);
        for (lane, arrival) in found {
            match self.heads.get_mut(lane) {
                Some(head) if trusted.contains(lane) => head.arrival = head.arrival.max(*arrival),
                _ => drop(
                    self.heads
                        .insert(*lane, LaneHead { arrival: *arrival, searched_ms: now_ms, trusted_ms }),
                ),
            }
        }
    }

    pub(super) fn turns(&self, namespace: &str, queues: &[&str]) -> Vec<i64> {
        let clock = |queue: &&str| self.clocks.get(&(namespace.to_owned(), (*queue).to_owned())).copied();
        queues
            .iter()
            .map(|queue| to_sql(clock(queue).unwrap_or(0).max(self.clock)))
            .collect()
    }

    /// The clocks after a claim of several queues; the last of them is the one by which all go. Of one queue: so many turns.
    pub(super) fn note_turns(
        &mut self,
        namespace: &str,
        queues: &[QueueWeight],
        taken: usize,
        clocks: &[u64],
    ) {
        let key = |queue: &QueueName| (namespace.to_owned(), queue.as_str().to_owned());
        if let [(queue, weight)] = queues
            && let Ok(taken @ 1..) = u64::try_from(taken)
        {
            let step = STRIDE / u64::from((*weight).max(1)).min(STRIDE);
            let first = self.clocks.get(&key(queue)).copied().unwrap_or(0).max(self.clock);
            self.clock = first + step * (taken - 1);
            self.clocks.insert(key(queue), self.clock + step);
        } else if let Some((last, clocks)) = clocks.split_last() {
            self.clock = self.clock.max(*last);
            for ((queue, _), clock) in queues.iter().zip(clocks) {
                self.clocks.insert(key(queue), *clock);
            }
        }
    }
}
