//! Every job that has not come to its end, in a slab, found by its id. One that has is brought back for as long as a
//! step needs it.

use std::hash::BuildHasher;

use fencehold_core::job::{JobId, JobRecord};
use fencehold_core::lease::HoldState;
use hashbrown::{DefaultHashBuilder, HashTable};

use super::archive::{JobSummary, StoredJob};

/// One job. Kept small: a million of them are in memory.
#[derive(Debug)]
pub(super) struct JobSlot {
    pub(super) id: JobId,
    pub(super) arrival: u64,
    pub(super) queue: u32,
    /// How large its body is, and within what time it asks others to yield; 0: it asks none.
    pub(super) bytes: u32,
    pub(super) yield_within_ms: u32,
    /// It undoes an effect of another job.
    pub(super) undoes: bool,
    /// The archive has it among the finished ones.
    pub(super) was_finished: bool,
    /// A renewal of one of its claims may be on record.
    pub(super) renewed: bool,
    pub(super) record: JobRecord,
    /// While it is claimed: when the claim runs out.
    pub(super) deadline_ms: u64,
}

impl JobSlot {
    pub(super) fn of(job: StoredJob) -> Self {
        let StoredJob { arrival, id, queue, record, deadline_ms, about, renewed, .. } = job;
        let JobSummary { bytes, yield_within_ms, undoes } = about;
        let was_finished = record.state.is_final();
        JobSlot {
            id,
            arrival,
            queue,
            bytes,
            yield_within_ms,
            undoes,
            was_finished,
            renewed,
            record,
            deadline_ms,
        }
    }

    pub(super) fn term(&self, now_ms: u64) -> HoldState {
        HoldState::at(now_ms, self.record.claim.as_ref().map(|_| self.deadline_ms))
    }

    pub(super) fn is_live(&self, now_ms: u64) -> bool {
        self.term(now_ms).is_live()
    }

    pub(super) fn kept(&self) -> Box<StoredJob> {
        Box::new(StoredJob {
            arrival: self.arrival,
            id: self.id,
            queue: self.queue,
            record: self.record.clone(),
            deadline_ms: self.deadline_ms,
            about: JobSummary {
                bytes: self.bytes,
                yield_within_ms: self.yield_within_ms,
                undoes: self.undoes,
            },
            reopened: self.was_finished,
            renewed: self.renewed,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct JobTable {
    slots: Vec<Option<JobSlot>>,
    free: Vec<u32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

impl JobTable {
    pub(super) fn find(&self, id: JobId) -> Option<u32> {
        let same = |at: &u32| self.at(*at).is_some_and(|slot| slot.id == id);
        self.index.find(self.hasher.hash_one(id), same).copied()
    }

    pub(super) fn get(&self, id: JobId) -> Option<&JobSlot> {
        self.at(self.find(id)?)
    }

    pub(super) fn insert(&mut self, job: StoredJob) -> u32 {
        let at = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 jobs: their number is bounded")
        });
        let id = job.id;
        self.slots[at as usize] = Some(JobSlot::of(job));
        let (slots, hasher) = (&self.slots, &self.hasher);
        let rehash = |at: &u32| slots[*at as usize].as_ref().map_or(0, |slot| hasher.hash_one(slot.id));
        self.index.insert_unique(self.hasher.hash_one(id), at, rehash);
        at
    }

    pub(super) fn remove(&mut self, at: u32) -> Option<JobSlot> {
        let slot = self.slots.get_mut(at as usize)?.take()?;
        let hash = self.hasher.hash_one(slot.id);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == at) {
            entry.remove();
        }
        self.free.push(at);
        Some(slot)
    }

    pub(super) fn at(&self, at: u32) -> Option<&JobSlot> {
        self.slots.get(at as usize)?.as_ref()
    }

    pub(super) fn at_mut(&mut self, at: u32) -> Option<&mut JobSlot> {
        self.slots.get_mut(at as usize)?.as_mut()
    }

    /// The jobs that have ever been claimed.
    pub(super) fn with_attempts(&self) -> Vec<u32> {
        let claimed = |slot: &JobSlot| slot.record.claim.is_some() || slot.record.trail.is_some();
        let slots = (0..).zip(&self.slots).filter(|(_, slot)| slot.as_ref().is_some_and(claimed));
        slots.map(|(at, _)| at).collect()
    }

    pub(super) fn len(&self) -> u64 {
        self.index.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_of_them_are_in_memory() {
        assert!(size_of::<Option<JobSlot>>() <= 136, "{}", size_of::<Option<JobSlot>>());
    }
}
