//! What a simulated disk holds of jobs.

use std::collections::BTreeMap;

use fencehold_core::job::{JobId, ScheduleName};
use fencehold_core::{Namespace, Timestamp, Token};
use fencehold_engine::{
    JobChange, MemoryArchive, StoredJob, StoredJobs, StoredQueue, StoredSchedule, StoredUnique,
};
use fencehold_store_file::sim::{Trust, rebase_job};

/// The tables of jobs.
#[derive(Clone, Debug, Default)]
pub(super) struct JobImage {
    live: BTreeMap<u64, StoredJob>,
    terms: BTreeMap<u64, (Token, u64)>,
    ids: BTreeMap<u64, JobId>,
    queues: BTreeMap<u32, StoredQueue>,
    uniques: BTreeMap<(Namespace, [u8; 16]), StoredUnique>,
    schedules: BTreeMap<(Namespace, ScheduleName), StoredSchedule>,
    token_ceiling: Token,
    /// Bodies, notes, effects and finished jobs: what an engine reads only where it needs it.
    archive: MemoryArchive,
}

impl JobImage {
    pub(super) fn apply(&mut self, change: &JobChange) {
        match change {
            JobChange::Body { arrival, id, .. } => drop(self.ids.insert(*arrival, *id)),
            JobChange::Live(job) => drop(self.live.insert(job.arrival, job.as_ref().clone())),
            JobChange::Term { arrival, token, deadline_ms } => {
                self.terms.insert(*arrival, (*token, *deadline_ms));
            }
            JobChange::Finished(job) => {
                self.live.remove(&job.arrival);
                self.terms.remove(&job.arrival);
            }
            JobChange::Drop { arrival } => {
                self.ids.remove(arrival);
                self.live.remove(arrival);
                self.terms.remove(arrival);
            }
            JobChange::Unique(taken) => {
                self.uniques.insert((taken.namespace.clone(), taken.key), taken.clone());
            }
            JobChange::NoUnique { namespace, key } => {
                self.uniques.remove(&(namespace.clone(), *key));
            }
            JobChange::Queue(queue) => drop(self.queues.insert(queue.number, queue.clone())),
            JobChange::NoQueue { number } => drop(self.queues.remove(number)),
            JobChange::TokenCeiling { token } => self.token_ceiling = *token,
            JobChange::Schedule(schedule) => {
                let name = (schedule.namespace.clone(), schedule.spec.name.clone());
                self.schedules.insert(name, schedule.as_ref().clone());
            }
            JobChange::NoSchedule { namespace, name } => {
                self.schedules.remove(&(namespace.clone(), name.clone()));
            }
            // The rest is the archive's.
            JobChange::Note { .. } | JobChange::Effect { .. } | JobChange::NoEffect { .. } => {}
        }
        self.archive.take(change.clone());
    }

    pub(super) fn kept(&self, now: Timestamp, trust: Trust) -> StoredJobs {
        let live = self.live.values().map(|job| {
            let mut job = job.clone();
            let term = self.terms.get(&job.arrival);
            job.renewed = term.is_some();
            if let Some((_, deadline_ms)) = term.filter(|(token, _)| *token == job.record.token) {
                job.deadline_ms = job.deadline_ms.max(*deadline_ms);
            }
            rebase_job(&mut job, now, trust);
            job
        });
        StoredJobs {
            queues: self.queues.values().cloned().collect(),
            live: live.collect(),
            uniques: self.uniques.values().cloned().collect(),
            schedules: self.schedules.values().cloned().collect(),
            last_arrival: self.ids.last_key_value().map_or(0, |(arrival, _)| *arrival),
            last_id: self.ids.values().max().copied(),
            token_ceiling: self.token_ceiling,
            keep_finished_ms: None,
        }
    }

    pub(super) fn archive(&self) -> MemoryArchive {
        self.archive.clone()
    }

    /// Every live job as a new owner has written it.
    pub(super) fn rebase(&mut self, live: Vec<StoredJob>) {
        self.terms.clear();
        self.live = live.into_iter().map(|job| (job.arrival, job)).collect();
    }
}
