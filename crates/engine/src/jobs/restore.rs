//! Going on from what was kept.

use fencehold_contract::StoreError;
use fencehold_contract::job::JobCounts;

use super::archive::StoredJobs;
use super::batch::JobBatch;
use super::known_ids::KnownIds;
use crate::state::Engine;
use crate::step::Step;

/// How long an owner serves leases before it reads the jobs that nothing has needed. One that ends before leaves them, with
/// their schedules and their retention, to the next, as if nothing had served in between.
const LOAD_WITHIN_MS: u64 = 30_000;

impl Step<'_> {
    /// Reads the jobs, unless they are here. Where that fails, leases are served without them.
    pub(crate) fn load_jobs(&mut self) -> Result<(), StoreError> {
        if self.jobs.to_load_ms.is_none() {
            return Ok(());
        }
        let (kept, set_aside) = self.archive.load_jobs(self.engine.now)?;
        self.jobs.to_load_ms = None;
        self.set_aside += set_aside;
        self.restore_jobs(kept);
        Ok(())
    }

    /// Reads the jobs once they have waited long enough: what time brings to them is this owner's to note.
    pub(crate) fn load_jobs_in_time(&mut self) {
        if self.jobs.to_load_ms.is_some_and(|at_ms| at_ms <= self.now.store_ms)
            && let Err(error) = self.load_jobs()
        {
            tracing::warn!(%error, "the jobs of the store cannot be read");
            self.leave_jobs_for_later();
        }
    }
}

impl Engine {
    /// Jobs are read from the archive when something needs them.
    pub(crate) fn leave_jobs_for_later(&mut self) {
        self.jobs.to_load_ms = Some(self.now.store_ms.saturating_add(LOAD_WITHIN_MS));
    }

    /// Goes on from what was kept. All moments are on the clock that it will be asked by.
    pub(crate) fn restore_jobs(&mut self, kept: StoredJobs) {
        self.look_at_the_wall_clock();
        for queue in kept.queues {
            let space = self.table.space(&queue.namespace);
            let JobCounts { completed, failed, cancelled, .. } = queue.finished;
            for count in [completed, failed, cancelled] {
                self.jobs.finished = self.jobs.finished.saturating_add(count);
            }
            self.jobs.queues.restore(space, queue);
            if let Some(used) = self.table.used_mut(space) {
                used.queue_count += 1;
            }
        }
        self.jobs.pruning.restore(kept.keep_finished_ms);
        self.jobs.newest = kept.token_ceiling;
        self.jobs.ceiling = kept.token_ceiling;
        self.jobs.last_arrival = kept.last_arrival;
        self.jobs.ids = KnownIds::up_to(kept.last_id);
        for mut job in kept.live {
            if !self.jobs.queues.has(job.queue) {
                continue;
            }
            if let Some(claim) = &mut job.record.claim {
                claim.yield_request = None;
            }
            let space = self.jobs.queues.at(job.queue).space;
            for attempt in job.record.attempts() {
                self.jobs.past.insert((space, *attempt.hash.as_bytes()), ());
            }
            let at = self.jobs.table.insert(job);
            self.take_place(at);
        }
        for unique in kept.uniques {
            let space = self.table.space(&unique.namespace);
            self.jobs.uniques.restore(space, &unique);
        }
        for schedule in kept.schedules {
            let space = self.table.space(&schedule.namespace);
            self.jobs.schedules.restore(self.now, space, schedule);
        }
        // Jobs whose moment has come: that is kept with the first batch.
        let touched = std::mem::take(&mut self.jobs.batch.touched);
        self.jobs.batch = JobBatch { touched, ..JobBatch::default() };
    }

    /// The last deadline of a claim that anybody may believe in.
    pub(crate) fn latest_claim_ms(&self) -> u64 {
        let slots = self.jobs.by_token.values().filter_map(|at| self.job(*at));
        slots.map(|slot| slot.deadline_ms).max().unwrap_or(0)
    }
}
