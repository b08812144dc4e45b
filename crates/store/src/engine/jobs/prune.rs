//! Forgetting finished jobs after their time, in small steps that never stall claims.

use fencehold_core::Stamp;
use fencehold_core::job::{JobId, Undo};
use fencehold_core::limits::FINISHED_KEPT_MS;

use super::archive::{Archive, Rows};
use super::enqueue::unique_digest;
use crate::engine::state::Engine;

/// How many finished jobs one step looks at.
const STEP: usize = 256;
/// How long to rest after a walk over all of them.
const REST_MS: u64 = 60_000;

/// A walk over all finished jobs, in the order of their arrival.
#[derive(Debug, Default)]
pub(super) struct Pruning {
    at: u64,
    /// When to begin the next walk, in store time; while a walk is under way: now.
    next_ms: Option<u64>,
}

impl Pruning {
    pub(super) fn next_ms(&self) -> Option<u64> {
        self.next_ms
    }
}

impl Engine {
    /// Goes a step of the walk. True: there is more of it.
    pub(super) fn prune(&mut self, now: Stamp, archive: &mut dyn Archive) -> bool {
        if self.jobs.finished == 0 && self.jobs.uniques.is_empty() {
            self.jobs.pruning = Pruning::default();
            return false;
        }
        let rested_ms = now.store_ms.saturating_add(REST_MS);
        if *self.jobs.pruning.next_ms.get_or_insert(rested_ms) > now.store_ms {
            return false;
        }
        self.free_uniques(now, archive);
        let rows = self
            .archived(archive.page(Rows::Finished, self.jobs.pruning.at, STEP))
            .unwrap_or_default();
        let more = rows.len() == STEP;
        for row in rows {
            self.jobs.pruning.at = row.arrival + 1;
            let Some(job) = row.finished else { continue };
            let kept_for_ms = now.wall_ms.saturating_sub(job.record.since_wall_ms);
            // What is being undone, or could not be, is kept for people.
            let settled = matches!(job.record.undo, Undo::Nothing | Undo::Done);
            if kept_for_ms < FINISHED_KEPT_MS || !settled {
                continue;
            }
            let space = self.jobs.queues.at(job.queue).space;
            // While its unique key is taken, whoever sends the same again is told of this job.
            if self.keeps_its_key(now, space, row.id, row.arrival, archive) {
                continue;
            }
            // As it stands now, not as it stood in the archive: it may have been started over in this batch.
            if let Ok(at) = self.find_job(space, row.id, archive)
                && self.jobs.table.at(at).is_some_and(|slot| slot.record.state.is_final())
            {
                self.remove_job(now, space, at, archive);
            }
        }
        if !more {
            self.jobs.pruning.at = 0;
            self.jobs.pruning.next_ms = Some(rested_ms);
        }
        more
    }

    /// Whether the window of a job's unique key is still open.
    fn keeps_its_key(
        &mut self,
        now: Stamp,
        space: u32,
        id: JobId,
        arrival: u64,
        archive: &mut dyn Archive,
    ) -> bool {
        if self.jobs.uniques.is_empty() {
            return false;
        }
        let Some(key) = self.body(arrival, archive).and_then(|body| body.unique.clone()) else {
            return false;
        };
        ["job", "operation"].into_iter().any(|kind| {
            let taken = self.jobs.uniques.get(space, unique_digest(kind, &key));
            taken.is_some_and(|taken| taken.job == id && taken.until_wall_ms > now.wall_ms)
        })
    }
}
