//! A replay of the events, held against what the store counts: counts that name an event are those of a replay up to it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use fencehold::job::{JobCounts, JobState};
use fencehold::store::{LeaseStats, LeaseStore};
use fencehold::{Event, EventData, Key, LeaseOutcome};

/// What has come of the events so far.
#[derive(Default)]
pub(crate) struct Replay {
    /// Those that were read, and are not replayed yet.
    ahead: VecDeque<Event>,
    at: u64,
    acquired: u64,
    claimed: u64,
    ended: BTreeMap<LeaseOutcome, u64>,
    jobs: HashMap<Key, JobState>,
    /// How often each of the three was compared.
    compared: [u64; 3],
}

impl Replay {
    pub(crate) fn hear(&mut self, event: Event) {
        self.ahead.push_back(event);
    }

    /// Replays all up to this one, which was read. False: it is behind that already.
    pub(crate) fn go_to(&mut self, seq: u64) -> bool {
        while self.ahead.front().is_some_and(|event| event.seq <= seq) {
            let event = self.ahead.pop_front().unwrap();
            self.apply(event.key, event.data);
        }
        let is_ahead = seq >= self.at;
        self.at = self.at.max(seq);
        is_ahead
    }

    fn apply(&mut self, key: Key, data: EventData) {
        let state = match data {
            EventData::LeaseAcquired { .. } => {
                self.acquired += 1;
                return;
            }
            EventData::LeaseEnded { outcome, .. } => {
                *self.ended.entry(outcome).or_default() += 1;
                return;
            }
            EventData::JobClaimed { .. } => {
                self.claimed += 1;
                JobState::Running
            }
            EventData::JobEnqueued { state, .. } | EventData::JobAttemptEnded { state, .. } => state,
            _ => return,
        };
        self.jobs.insert(key, state);
    }

    pub(crate) fn compare_stats(&mut self, stats: &LeaseStats) {
        let all = [
            (LeaseOutcome::Released, stats.released_count),
            (LeaseOutcome::Expired, stats.expired_count),
            (LeaseOutcome::Revoked, stats.revoked_count),
        ];
        let total: BTreeMap<LeaseOutcome, u64> = all.into_iter().filter(|(_, count)| *count > 0).collect();
        assert!(stats.complete, "{stats:?}");
        assert_eq!(total, self.ended, "leases that ended up to event {}", self.at);
        let mut in_steps = BTreeMap::new();
        for (outcome, count) in stats.steps.iter().flat_map(|step| &step.ended_counts) {
            *in_steps.entry(*outcome).or_default() += count;
        }
        assert_eq!(in_steps, self.ended, "the same in steps");
        self.compared[0] += 1;
    }

    /// A delayed job becomes due without an event.
    pub(crate) fn compare_jobs(&mut self, counts: &JobCounts) {
        let group = |state| if state == JobState::Scheduled { JobState::Queued } else { state };
        let mut of_store: BTreeMap<JobState, u64> = BTreeMap::new();
        for state in JobState::ALL {
            *of_store.entry(group(state)).or_default() += counts.get(state);
        }
        of_store.retain(|_, count| *count > 0);
        let mut replayed: BTreeMap<JobState, u64> = BTreeMap::new();
        for state in self.jobs.values() {
            *replayed.entry(group(*state)).or_default() += 1;
        }
        assert_eq!(of_store, replayed, "jobs by state up to event {}", self.at);
        self.compared[1] += 1;
    }

    /// What is exported to monitoring, where this handle knows all of it.
    pub(crate) fn compare_metrics(&mut self, store: &dyn LeaseStore) {
        let Some(metrics) = store.metrics() else { return };
        metrics.facts.together(|counted| {
            let Some(counted) = counted.filter(|events| events.after_seq == 0) else { return };
            if counted.to_seq != self.at {
                return;
            }
            let facts = &metrics.facts;
            assert_eq!(
                (facts.granted.get(), facts.claimed.get()),
                (self.acquired, self.claimed),
                "up to {}",
                self.at
            );
            for (outcome, count) in &self.ended {
                let exported = facts.leases_ended(*outcome).unwrap();
                assert_eq!(exported.get(), *count, "{outcome} up to {}", self.at);
            }
            self.compared[2] += 1;
        });
    }

    /// How often each was compared: how leases ended, jobs by state, metrics.
    pub(crate) fn compared(&self) -> [u64; 3] {
        self.compared
    }
}
