//! What time brings: claims that run out, scheduled jobs whose moment has come. A little at a time, so that no request
//! waits for all of it.

use std::collections::BTreeSet;

use fencehold_core::job::{JobCommand, JobState};
use fencehold_core::limits::CRASHES_AT_ONCE_MAX;

use crate::state::Engine;
use crate::step::Step;

impl Step<'_> {
    /// Notes what has run out and what has become due, at most `budget` of it. True: there is more.
    pub(crate) fn sweep_jobs(&mut self, budget: usize) -> bool {
        self.look_at_the_wall_clock();
        self.dismiss_claimers();
        self.dismiss_waits();
        let fired = self.fire_schedules();
        let (mut left, now_ms) = (budget, self.now.store_ms);
        let mut run_out = Vec::new();
        while left > 0 {
            left -= 1;
            let Some(at) = self.jobs.wheel.pop_due(now_ms) else { break };
            let Some(slot) = self.job(at).filter(|slot| slot.record.claim.is_some()) else { continue };
            let deadline_ms = slot.deadline_ms;
            if now_ms < deadline_ms {
                // Renewed since. The wheel is lazy: only now does it learn.
                self.jobs.wheel.schedule(at, deadline_ms);
            } else {
                run_out.push((at, slot.id.spread(slot.record.token.get())));
            }
        }
        let is_herd = run_out.len() > CRASHES_AT_ONCE_MAX;
        for (at, random) in run_out {
            let _ = self.apply_to_job(at, &JobCommand::Expire { random: if is_herd { random } else { 0 } });
        }
        while left > 0 && self.wake_one() {
            left -= 1;
        }
        let more = self.prune();
        let idle = self.drop_idle_queues();
        fired || left == 0 || more || idle
    }
}

impl Engine {
    /// Moves one scheduled job whose time has come to its place among the ready ones.
    fn wake_one(&mut self) -> bool {
        let take_due = |due: &mut BTreeSet<(u64, u32)>, now_ms| {
            let is_due = due.first().is_some_and(|(at_ms, _)| *at_ms <= now_ms);
            if is_due { due.pop_first() } else { None }
        };
        let by_store = take_due(&mut self.jobs.due_store, self.now.store_ms);
        let due = by_store.or_else(|| take_due(&mut self.jobs.due_wall, self.now.wall_ms));
        let Some((_, at)) = due else { return false };
        self.becomes_ready(at);
        let jobs = &mut self.jobs;
        let Some(slot) = jobs.table.at(at) else { return true };
        let queue = jobs.queues.at_mut(slot.queue);
        let count = queue.counts.get_mut(JobState::Scheduled);
        *count = count.saturating_sub(1);
        queue.counts.queued += 1;
        queue.ready.insert(slot.record.options.priority, slot.arrival, at);
        jobs.queues.stirred.insert(slot.queue);
        true
    }

    /// Notes what the wall clock shows. One that was set back makes the next moments of schedules be looked for anew.
    pub(super) fn look_at_the_wall_clock(&mut self) {
        let ahead_ms = i128::from(self.now.wall_ms) - i128::from(self.now.store_ms);
        self.jobs.wall_ahead_ms = ahead_ms;
        self.jobs.schedules.wall_clock_shows(self.now, ahead_ms);
    }

    /// When the engine must be woken for a job without a request.
    pub(crate) fn next_job_due_ms(&self) -> Option<u64> {
        let jobs = &self.jobs;
        let to_store_ms = |wall_ms: u64| u64::try_from(i128::from(wall_ms) - jobs.wall_ahead_ms).unwrap_or(0);
        [
            jobs.wheel.next_ms(),
            jobs.due_store.first().map(|(at_ms, _)| *at_ms),
            jobs.due_wall.first().map(|(at_ms, _)| to_store_ms(*at_ms)),
            jobs.claimers.waiting.next_ms(),
            jobs.waits.waiting.next_ms(),
            jobs.schedules.next_wall_ms().map(to_store_ms),
            jobs.pruning.next_ms,
            jobs.to_load_ms,
            (!jobs.queues.idle.is_empty()).then_some(0),
        ]
        .into_iter()
        .flatten()
        .min()
    }
}
