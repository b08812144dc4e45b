//! Workers: the owners that hold leases, work on jobs, or were lost lately. A store keeps no workers: they are names on holds, attempts and
//! events.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fencehold_core::job::AttemptOutcome;
use fencehold_core::lease::LeaseOutcome;
use fencehold_core::{Event, EventData, Owner};

use super::query::Held;

/// What is known of a worker.
#[derive(Clone, Debug, Default)]
pub(super) struct Worker {
    pub(super) lease_count: u64,
    pub(super) job_count: u64,
    /// Of all that it holds, what is closest to its end: time left, and ttl.
    pub(super) least_left: Option<(u64, u64)>,
    /// How long before the picture it renewed, or was granted, anything.
    pub(super) renewed_ago_ms: Option<u64>,
    pub(super) lost_count: u64,
    pub(super) lost_at_ms: Option<u64>,
    /// The last event with its name.
    pub(super) seen_at_ms: Option<u64>,
}

impl Worker {
    fn holds(&mut self, remaining_ms: u64, ttl_ms: u64, renewed_ago_ms: Option<u64>) {
        // A renewal gives the whole ttl again.
        let ago_ms = renewed_ago_ms.unwrap_or(ttl_ms.saturating_sub(remaining_ms));
        self.renewed_ago_ms = Some(self.renewed_ago_ms.map_or(ago_ms, |known| known.min(ago_ms)));
        if self.least_left.is_none_or(|(left, _)| remaining_ms < left) {
            self.least_left = Some((remaining_ms, ttl_ms));
        }
    }
}

/// Every worker. Who was lost last is what is looked for; then who holds most.
pub(super) fn gather<'e>(held: &Held, events: impl Iterator<Item = &'e Event>) -> Vec<(Owner, Worker)> {
    let mut workers: BTreeMap<Owner, Worker> = BTreeMap::new();
    for holder in held.leases.rows.iter().filter_map(|lease| lease.holder.as_ref()) {
        let worker = workers.entry(holder.owner.clone()).or_default();
        worker.lease_count += 1;
        worker.holds(holder.remaining_ms, holder.ttl_ms, holder.renewed_ago_ms);
    }
    for runner in held.jobs.rows.iter().filter_map(|job| job.runner.as_ref()) {
        let worker = workers.entry(runner.owner.clone()).or_default();
        worker.job_count += 1;
        worker.holds(runner.remaining_ms, runner.ttl_ms, None);
    }
    for event in events {
        let (owner, is_lost) = match &event.data {
            EventData::LeaseEnded { owner, outcome, .. } => (owner, *outcome == LeaseOutcome::Expired),
            EventData::JobAttemptEnded { owner, outcome, .. } => (owner, *outcome == AttemptOutcome::Crashed),
            EventData::LeaseAcquired { owner, .. } | EventData::JobClaimed { owner, .. } => (owner, false),
            _ => continue,
        };
        let worker = workers.entry(owner.clone()).or_default();
        worker.seen_at_ms = Some(event.at_ms);
        if is_lost {
            worker.lost_count += 1;
            worker.lost_at_ms = Some(event.at_ms);
        }
    }
    let mut workers: Vec<_> = workers.into_iter().collect();
    workers.sort_by_key(|(_, worker)| {
        Reverse((worker.lost_at_ms, worker.lease_count + worker.job_count, worker.seen_at_ms))
    });
    workers
}

#[cfg(test)]
mod tests {
    use fencehold_core::{Key, Namespace, Token};

    use super::*;
    use crate::verb::top::samples;

    #[test]
    fn who_was_lost_last_comes_first_and_then_who_holds_most() {
        let held = Held { leases: samples::leases(), ..Held::default() };
        let lost = EventData::LeaseEnded {
            token: Token::new(3),
            owner: Owner::new("gone").unwrap(),
            task: None,
            outcome: LeaseOutcome::Expired,
            by: None,
            reason: None,
        };
        let lost = Event::new(7, 1_000, Namespace::default(), Key::new("k").unwrap(), lost);
        let workers = gather(&held, [&lost].into_iter());
        assert_eq!(workers[0].0.as_str(), "gone");
        assert_eq!((workers[0].1.lost_count, workers[0].1.lost_at_ms), (1, Some(1_000)));
        assert_eq!(workers[0].1.least_left, None, "it holds nothing");
        assert!(
            workers[1..]
                .windows(2)
                .all(|pair| pair[0].1.lease_count >= pair[1].1.lease_count)
        );
    }
}
