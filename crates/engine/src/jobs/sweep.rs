//! What time brings: claims that run out, scheduled jobs whose moment has come. A little at a time, so that no request
//! waits for all of it.

use fencehold_core::Timestamp;
use fencehold_core::job::{JobCommand, JobState};

use super::archive::Archive;
use crate::state::Engine;

impl Engine {
    /// Notes what has run out and what has become due, at most `budget` of it. True: there is more.
    pub(crate) fn sweep_jobs(&mut self, now: Timestamp, budget: usize, archive: &mut dyn Archive) -> bool {
        self.look_at_the_wall_clock(now);
        self.dismiss_claimers(now);
        self.dismiss_waits(now);
        let fired = self.fire_schedules(now, archive);
        let mut left = budget;
        while left > 0 {
            left -= 1;
            let Some(at) = self.jobs.wheel.pop_due(now.store_ms) else { break };
            let Some(slot) = self.jobs.table.at(at).filter(|slot| slot.record.claim.is_some()) else {
                continue;
            };
            if now.store_ms < slot.deadline_ms {
                // Renewed since. The wheel is lazy: only now does it learn.
                self.jobs.wheel.schedule(at, slot.deadline_ms);
            } else {
                let random = slot.id.spread(slot.record.token.get());
                let _ = self.apply_to_job(now, at, &JobCommand::Expire { random }, archive);
            }
        }
        while left > 0 && self.wake_one(now) {
            left -= 1;
        }
        let more = self.prune(now, archive);
        let idle = self.drop_idle_queues();
        fired || left == 0 || more || idle
    }

    /// Moves one scheduled job whose time has come to its place among the ready ones.
    fn wake_one(&mut self, now: Timestamp) -> bool {
        let jobs = &mut self.jobs;
        let by_store = jobs.due_store.first().filter(|(at_ms, _)| *at_ms <= now.store_ms).copied();
        let by_wall = jobs.due_wall.first().filter(|(at_ms, _)| *at_ms <= now.wall_ms).copied();
        let at = match (by_store, by_wall) {
            (Some(due), _) => {
                jobs.due_store.remove(&due);
                due.1
            }
            (None, Some(due)) => {
                jobs.due_wall.remove(&due);
                due.1
            }
            (None, None) => return false,
        };
        self.becomes_ready(at);
        let jobs = &mut self.jobs;
        let Some(slot) = jobs.table.at(at) else { return true };
        let queue = jobs.queues.at_mut(slot.queue);
        let count = queue.counts.of(JobState::Scheduled);
        *count = count.saturating_sub(1);
        queue.counts.queued += 1;
        queue.ready.insert(slot.record.options.priority, slot.arrival, at);
        jobs.queues.stirred.insert(slot.queue);
        true
    }

    /// Notes what the wall clock shows. One that was set back makes the next moments of schedules be looked for anew.
    pub(super) fn look_at_the_wall_clock(&mut self, now: Timestamp) {
        let ahead_ms = i128::from(now.wall_ms) - i128::from(now.store_ms);
        self.jobs.wall_ahead_ms = ahead_ms;
        self.jobs.schedules.wall_clock_shows(now, ahead_ms);
    }

    /// When the engine must be woken for a job without a request.
    pub(crate) fn next_job_due_ms(&self) -> Option<u64> {
        let jobs = &self.jobs;
        let to_store_ms = |wall_ms: u64| u64::try_from(i128::from(wall_ms) - jobs.wall_ahead_ms).unwrap_or(0);
        [
            jobs.wheel.next_ms(),
            jobs.due_store.first().map(|(at_ms, _)| *at_ms),
            jobs.due_wall.first().map(|(at_ms, _)| to_store_ms(*at_ms)),
            jobs.claimers.next_ms(),
            jobs.waits.next_ms(),
            jobs.schedules.next_wall_ms().map(to_store_ms),
            jobs.pruning.next_ms(),
            jobs.to_load_ms,
            (!jobs.queues.idle.is_empty()).then_some(0),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
