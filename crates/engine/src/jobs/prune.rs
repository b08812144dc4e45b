//! Forgetting finished jobs after their time, in small steps that never stall claims.
//!
//! Nouns: a *stretch* is so many neighbours in the order of arrival, as many as one step looks at. Of each stretch the
//! earliest *end* of a job in it is known, so that only stretches with something to forget are read.
//!
//! Deliberately absent: the end of every single job, in memory or in an index on disk. Finished jobs are many and cost no
//! memory; and an index would have to be written at the end of every job, for the sake of work that can wait.

use std::collections::BTreeSet;

use fencehold_contract::KeepFinished;
use fencehold_core::job::{CompensationState, JobId};
use hashbrown::HashMap;

use super::archive::{ArchiveRange, ArchiveRow};
use super::batch::JobSlotChange;
use super::enqueue::{unique_digest, window_clock_ms};
use crate::persistence::Change;
use crate::state::Engine;
use crate::step::Step;

/// How many finished jobs one step looks at.
const STEP: usize = 256;
/// How long to rest when there is nothing more to forget.
const REST_MS: u64 = 60_000;

/// Where finished jobs are, and when to look at them.
#[derive(Debug)]
pub(super) struct Pruning {
    kept_ms: u64,
    ends: EarliestEnds,
    /// Jobs from this arrival on ended under an earlier owner, and have not been looked at.
    unseen_from: Option<u64>,
    /// When to begin again, in store time; while there is more to do: now.
    pub(super) next_ms: Option<u64>,
}

impl Default for Pruning {
    fn default() -> Self {
        let kept_ms = KeepFinished::default().ms();
        Pruning { kept_ms, ends: EarliestEnds::default(), unseen_from: None, next_ms: None }
    }
}

impl Pruning {
    /// A job has come to its end.
    pub(super) fn ended(&mut self, arrival: u64, ended_ms: u64) {
        self.ends.note(arrival, ended_ms);
    }

    /// What ended under an earlier owner is looked at once, to learn when.
    pub(super) fn restore(&mut self, kept_ms: Option<u64>) {
        self.kept_ms = kept_ms.unwrap_or(self.kept_ms);
        self.unseen_from = Some(0);
    }

    /// There is nothing that could be forgotten.
    fn forget_all(&mut self) {
        *self = Pruning { kept_ms: self.kept_ms, ..Pruning::default() };
    }

    /// Where to look next: at what was not looked at yet, else where a job ended long enough ago.
    fn next_look(&mut self, now_ms: u64) -> Option<PruneRange> {
        if let Some(from) = self.unseen_from {
            return Some(PruneRange { from, to: None });
        }
        let ended_by_ms = now_ms.checked_sub(self.kept_ms)?;
        let from = self.ends.take(ended_by_ms)? * STEP as u64;
        Some(PruneRange { from, to: Some(from + STEP as u64) })
    }
}

/// The arrivals that one step looks at, the last of them excluded; `None`: as many as it can.
struct PruneRange {
    from: u64,
    to: Option<u64>,
}

/// The earliest end in each stretch, in store time: retention is elapsed time, whatever the wall clock is set to.
#[derive(Debug, Default)]
struct EarliestEnds {
    of: HashMap<u64, u64>,
    in_order: BTreeSet<(u64, u64)>,
}

impl EarliestEnds {
    fn note(&mut self, arrival: u64, ended_ms: u64) {
        let stretch = arrival / STEP as u64;
        let earliest = self.of.entry(stretch).or_insert(u64::MAX);
        if ended_ms < *earliest {
            self.in_order.remove(&(*earliest, stretch));
            self.in_order.insert((ended_ms, stretch));
            *earliest = ended_ms;
        }
    }

    /// Takes the stretch with the earliest end, if that is not later than this moment. What stays in it is noted anew.
    fn take(&mut self, by_ms: u64) -> Option<u64> {
        let first = *self.in_order.first()?;
        if first.0 > by_ms {
            return None;
        }
        self.in_order.remove(&first);
        self.of.remove(&first.1);
        Some(first.1)
    }
}

impl Step<'_> {
    /// Looks at a stretch, and forgets what is to be forgotten there. True: there is more to do.
    pub(super) fn prune(&mut self) -> bool {
        if self.jobs.finished == 0 && self.jobs.uniques.is_empty() {
            self.jobs.pruning.forget_all();
            return false;
        }
        // The first look comes at once: who owns the store may not do so for long.
        if self.jobs.pruning.next_ms.is_some_and(|next_ms| next_ms > self.now.store_ms) {
            return false;
        }
        let more_keys = self.free_uniques();
        let now_ms = self.now.store_ms;
        let Some(PruneRange { from, to }) = self.jobs.pruning.next_look(now_ms) else {
            self.jobs.pruning.next_ms = (!more_keys).then(|| now_ms.saturating_add(REST_MS));
            return more_keys;
        };
        let rows = self.archived(|archive| archive.page(ArchiveRange::Finished, from, STEP));
        let rows = rows.unwrap_or_default();
        if to.is_none() {
            let last = rows.last().filter(|_| rows.len() == STEP);
            self.jobs.pruning.unseen_from = last.map(|row| row.arrival + 1);
        }
        for row in rows.into_iter().filter(|row| to.is_none_or(|to| row.arrival < to)) {
            self.forget_or_note(row);
        }
        if let Some(to) = to {
            self.note_what_just_ended(from, to);
        }
        true
    }

    /// Forgets a finished job whose time has come, or notes when to look at it again.
    fn forget_or_note(&mut self, row: ArchiveRow) {
        let ArchiveRow { arrival, id, finished } = row;
        let Some(job) = finished else { return };
        // What is being undone, or could not be, is kept for people. Once it is undone it is noted again.
        if !matches!(job.record.compensation_state, CompensationState::None | CompensationState::Done) {
            return;
        }
        // An earlier version noted the end in wall time alone, from which its store time was begun.
        let noted_ms = if job.deadline_ms == 0 { job.record.since_wall_ms } else { job.deadline_ms };
        let (ended_ms, kept_ms) = (noted_ms.min(self.now.store_ms), self.jobs.pruning.kept_ms);
        if self.now.store_ms - ended_ms < kept_ms {
            return self.jobs.pruning.ended(arrival, ended_ms);
        }
        let space = self.jobs.queues.at(job.queue).space;
        // While its unique key is taken, the same request gets this job.
        if let Some(until_ms) = self.keeps_its_key_until(space, id, arrival) {
            return self.jobs.pruning.ended(arrival, until_ms.saturating_sub(kept_ms));
        }
        // As it stands now, not as it stood in the archive: it may have been started over in this batch.
        if let Ok(at) = self.find_job(space, id)
            && self.job(at).is_some_and(|slot| slot.record.state.is_final())
        {
            self.remove_job(space, at);
        }
    }

    /// Until when the window of a job's unique key is open, if it still is.
    fn keeps_its_key_until(&mut self, space: u32, id: JobId, arrival: u64) -> Option<u64> {
        if self.jobs.uniques.is_empty() {
            return None;
        }
        let key = self.body(arrival)?.unique.clone()?;
        let open = |kind| {
            let taken = self.jobs.uniques.get(space, unique_digest(kind, &key))?;
            (taken.job == id && taken.until_ms > window_clock_ms(self.now)).then_some(taken.until_ms)
        };
        ["job", "operation"].into_iter().filter_map(open).max()
    }
}

impl Engine {
    /// Sets for how long finished jobs are kept from now on.
    pub fn keep_finished(&mut self, kept: KeepFinished) {
        self.jobs.pruning.kept_ms = kept.ms();
    }

    /// The same, for the next owner of this store too. One that names no time leaves it as it is.
    pub(crate) fn set_keep_finished(&mut self, kept: KeepFinished) {
        let Some(ms) = kept.named_ms() else { return };
        self.keep_finished(kept);
        self.batch.others.push(Change::KeepFinished { ms });
        self.batch.durable = true;
    }

    /// What ended in this very batch is not in the archive yet, so a look there has not found it.
    fn note_what_just_ended(&mut self, from: u64, to: u64) {
        let jobs = &mut self.jobs;
        for (arrival, touch) in jobs.batch.touched.range(from..to) {
            if let JobSlotChange::Put(at) = touch
                && let Some(slot) = jobs.table.at(*at).filter(|slot| slot.record.state.is_final())
            {
                jobs.pruning.ended(*arrival, slot.deadline_ms);
            }
        }
    }
}
