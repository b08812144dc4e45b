//! Where a job stands by its record: among the ready ones of its queue, with those that wait for their time, or with its holder.

use fencehold_core::job::{Due, JobRecord, JobState};

use crate::state::Engine;
use crate::step::Step;

impl Step<'_> {
    /// Gives a job a new record, and moves it to where it then belongs.
    pub(super) fn become_job(&mut self, at: u32, record: JobRecord) {
        let (state, now_ms) = (record.state, self.now.store_ms);
        self.leave_place(at);
        let Some(slot) = self.jobs.table.at_mut(at) else { return };
        let was = std::mem::replace(&mut slot.record, record);
        if state.is_final() && !was.state.is_final() {
            slot.deadline_ms = now_ms;
        }
        let newest = slot.record.token;
        self.jobs.touch(at);
        self.raise_newest(newest);
        self.take_place(at);
        if state.is_settled() && !was.state.is_settled() {
            self.answer_waits(at);
        }
        if state.is_final() && !was.state.is_final() {
            // What it undid counts, what it did is undone.
            self.jobs.batch.leaving.push(at);
            if self.job(at).is_some_and(|slot| slot.undoes) {
                self.undo_goes_on(at);
            }
            self.begin_to_undo(at);
        }
        if state != JobState::Running && was.state == JobState::Running {
            self.jobs.forget_notice_of(at);
        }
    }
}

impl Engine {
    /// Takes a job out of the place that its record gives it.
    pub(super) fn leave_place(&mut self, at: u32) {
        let jobs = &mut self.jobs;
        let Some(slot) = jobs.table.at(at) else { return };
        let (record, queue_no) = (&slot.record, slot.queue);
        let queue = jobs.queues.at_mut(queue_no);
        let (priority, arrival) = (record.options.priority, slot.arrival);
        let mut shown = record.state;
        match record.state {
            JobState::Queued => drop(queue.ready.remove(priority, arrival)),
            JobState::Scheduled => {
                let waited = match record.due {
                    Due::Store(at_ms) => jobs.due_store.remove(&(at_ms, at)),
                    Due::Wall(at_ms) => jobs.due_wall.remove(&(at_ms, at)),
                    Due::Now => false,
                };
                if !waited && queue.ready.remove(priority, arrival).is_some() {
                    shown = JobState::Queued;
                }
            }
            JobState::Running => {
                queue.running.remove(&(priority, at));
                jobs.by_token.remove(&record.token);
                if let Some(claim) = &record.claim {
                    let hold = (queue.space, *claim.hash.as_bytes());
                    if let Some(held) = jobs.by_hold.get_mut(&hold) {
                        held.retain(|other| *other != at);
                        if held.is_empty() {
                            jobs.by_hold.remove(&hold);
                            jobs.past.insert(hold, ());
                        }
                    }
                }
            }
            _ => {}
        }
        let count = queue.counts.get_mut(shown);
        *count = count.saturating_sub(1);
        if shown.is_final() {
            jobs.finished = jobs.finished.saturating_sub(1);
            jobs.batch.queues.insert(queue_no);
        } else {
            self.table.uncount_job(queue.space, slot.bytes);
        }
        jobs.queues.may_be_idle(queue_no);
    }

    /// Notes in its record that a job's moment has come: a wall clock that is set back afterwards takes nothing back. Store
    /// time is never set back, so only a moment of the wall clock has to be kept.
    pub(super) fn becomes_ready(&mut self, at: u32) {
        let Some(slot) = self.jobs.table.at_mut(at) else { return };
        if slot.record.state != JobState::Scheduled {
            return;
        }
        slot.record.state = JobState::Queued;
        if let Due::Wall(_) = std::mem::take(&mut slot.record.due) {
            self.jobs.touch(at);
        }
    }

    /// Takes a job that cannot be claimed from among the ready ones, to where its record says that it belongs.
    pub(super) fn is_not_ready(&mut self, at: u32) {
        let Some(slot) = self.jobs.table.at(at) else { return };
        let (queue, priority, arrival) = (slot.queue, slot.record.options.priority, slot.arrival);
        let state = slot.record.state_at(self.now);
        let queue = self.jobs.queues.at_mut(queue);
        queue.ready.remove(priority, arrival);
        if state == JobState::Scheduled {
            queue.counts.queued = queue.counts.queued.saturating_sub(1);
            // It is counted again where it belongs.
            self.table.uncount_job(queue.space, slot.bytes);
            self.take_place(at);
        }
    }

    /// Puts a job into the place that its record gives it.
    pub(super) fn take_place(&mut self, at: u32) {
        if self.job_state(at) == Some(JobState::Queued) {
            self.becomes_ready(at);
        }
        let jobs = &mut self.jobs;
        let Some(slot) = jobs.table.at(at) else { return };
        let (record, queue_no) = (&slot.record, slot.queue);
        let queue = jobs.queues.at_mut(queue_no);
        let (priority, arrival) = (record.options.priority, slot.arrival);
        let shown = record.state_at(self.now);
        *queue.counts.get_mut(shown) += 1;
        if !shown.is_final()
            && let Some(used) = self.table.used_mut(queue.space)
        {
            used.job_count += 1;
            used.payload_bytes += u64::from(slot.bytes);
        }
        match shown {
            JobState::Queued => {
                queue.ready.insert(priority, arrival, at);
                jobs.queues.stirred.insert(queue_no);
            }
            JobState::Scheduled => match record.due {
                Due::Store(at_ms) => drop(jobs.due_store.insert((at_ms, at))),
                Due::Wall(at_ms) => drop(jobs.due_wall.insert((at_ms, at))),
                Due::Now => {}
            },
            JobState::Running => {
                queue.running.insert((priority, at));
                jobs.by_token.insert(record.token, at);
                if let Some(claim) = &record.claim {
                    jobs.by_hold.entry((queue.space, *claim.hash.as_bytes())).or_default().push(at);
                }
                jobs.wheel.schedule(at, slot.deadline_ms);
            }
            _ => {}
        }
        if shown.is_final() {
            jobs.finished += 1;
            jobs.pruning.ended(arrival, slot.deadline_ms);
            jobs.batch.queues.insert(queue_no);
        }
    }
}
