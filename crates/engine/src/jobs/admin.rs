//! What operators do: call jobs off, have them start over, forget them; pause, resume and drain queues.

use fencehold_contract::StoreError;
use fencehold_contract::job::{
    ChangeJobBatchResponse, ChangeJobResult, ChangeJobsRequest, Contents, JobAction, JobFilter, JobSelector,
    QueueList, QueueMode, QueueView, SetQueueModeRequest,
};
use fencehold_contract::quota::Limited;
use fencehold_core::job::{
    ForcedState, JobCommand, JobCommandResult, JobId, JobRefusal, JobState, QueueName,
};
use fencehold_core::{EventData, Owner};

use super::archive::{JobChange, JobNote};
use super::enqueue::unique_digest;
use super::queues::QueueState;
use super::{ItemResult, JobSlotChange};
use crate::state::Engine;
use crate::step::Step;

impl Step<'_> {
    pub(super) fn change_jobs(&mut self, space: u32, request: &ChangeJobsRequest) -> ChangeJobBatchResponse {
        let (ids, next_cursor) = match &request.selector {
            JobSelector::Ids { job_ids } => (job_ids.clone(), None),
            JobSelector::Filter { filter } => self.matching(space, filter, request),
            JobSelector::All {} => self.matching(space, &JobFilter::default(), request),
        };
        let change = |job_id| ChangeJobResult { job_id, result: self.change_job(space, job_id, request) };
        ChangeJobBatchResponse { results: ids.into_iter().map(change).collect(), next_cursor }
    }

    /// The jobs of one page. Nothing comes in between: they are changed in the same step.
    fn matching(
        &mut self,
        space: u32,
        filter: &JobFilter,
        request: &ChangeJobsRequest,
    ) -> (Vec<JobId>, Option<u64>) {
        let mut ids: Vec<JobId> = Vec::new();
        let next = self.each_match(space, filter, request.cursor, request.limit, |slot, _| ids.push(slot.id));
        (ids, self.archived(|_| next).flatten())
    }

    fn change_job(&mut self, space: u32, id: JobId, request: &ChangeJobsRequest) -> ItemResult<JobState> {
        let at = self.find_job(space, id)?;
        let by = request.by.clone();
        let command = match &request.action {
            JobAction::Cancel { reason, force } => {
                JobCommand::Cancel { by, reason: reason.clone(), now: *force }
            }
            JobAction::Retry => JobCommand::Retry { by },
            JobAction::Delete { force } => JobCommand::Delete { force: *force },
            JobAction::Complete { reason, .. } => {
                JobCommand::EndByForce { state: ForcedState::Completed, by, reason: reason.clone() }
            }
            JobAction::Fail { reason } => {
                JobCommand::EndByForce { state: ForcedState::Failed, by, reason: reason.clone() }
            }
        };
        if request.dry_run {
            let slot = self.job(at).ok_or(JobRefusal::JobNotFound)?;
            let decision = self.decide_job(slot, &command);
            decision.reply?;
            return Ok(decision.record.as_ref().unwrap_or(&slot.record).state_at(self.now));
        }
        let state = self.job_state(at).unwrap_or(JobState::Completed);
        if self.apply_to_job(at, &command)? == JobCommandResult::Deleted {
            let (by, forced) = (request.by.clone(), state == JobState::Running);
            self.note_job(space, id, vec![EventData::JobDeleted { by, state, forced }]);
            self.remove_job(space, at);
            return Ok(state);
        }
        if let JobAction::Complete { result: Some(result), .. } = &request.action {
            self.keep_note(at, JobNote::Result, result.as_bytes().into());
        }
        if matches!(request.action, JobAction::Complete { .. } | JobAction::Fail { .. }) {
            self.withdraw_operation(at);
        }
        // A job that is not ready any more asks no holder to yield.
        if self.job_state(at) != Some(JobState::Queued) {
            self.withdraw_notice_for(at);
        }
        Ok(self.job_state(at).unwrap_or(state))
    }

    /// Removes a job from memory and from the archive, and frees its unique key.
    pub(super) fn remove_job(&mut self, space: u32, at: u32) {
        self.answer_waits(at);
        let Some((arrival, id)) = self.job(at).map(|slot| (slot.arrival, slot.id)) else { return };
        if let Some(body) = self.body(arrival)
            && let Some(key) = &body.unique
        {
            for key in ["job", "operation"].map(|kind| unique_digest(kind, key)) {
                if self.jobs.uniques.get(space, key).is_some_and(|taken| taken.job == id) {
                    self.drop_unique(space, key);
                }
            }
        }
        self.withdraw_notice_for(at);
        self.jobs.forget_notice_of(at);
        self.leave_place(at);
        self.jobs.table.remove(at);
        self.jobs.ledgers.remove(&at);
        self.jobs.batch.leaving.retain(|other| *other != at);
        self.jobs.batch.bodies.remove(&arrival);
        self.jobs.batch.touched.insert(arrival, JobSlotChange::Drop);
        self.batch.durable = true;
    }
}

impl Engine {
    pub(super) fn list_queues(&self, space: u32) -> QueueList {
        let mut queues: Vec<QueueView> = self.jobs.queues.of_space(space).map(QueueState::view).collect();
        queues.sort_by(|a, b| a.name.cmp(&b.name));
        QueueList { queues, event_seq: Some(self.events.last_seq()) }
    }

    /// A queue is kept from now on, if it was not.
    pub(super) fn keep_queue(&mut self, number: u32) {
        let queue = self.jobs.queues.at_mut(number);
        if std::mem::replace(&mut queue.is_kept, true) {
            return;
        }
        if let Some(used) = self.table.used_mut(queue.space) {
            used.queue_count += 1;
        }
        self.jobs.batch.queues.insert(number);
    }

    pub(super) fn set_queue(
        &mut self,
        space: u32,
        request: SetQueueModeRequest,
    ) -> Result<QueueView, StoreError> {
        let SetQueueModeRequest { queue: name, mode, by, .. } = request;
        if self.jobs.queues.find_kept(space, &name).is_none() {
            self.check_quota(space, Limited::Queues, 1)?;
        }
        self.table.keep_space(space);
        let number = self.jobs.queues.find_or_insert(space, &name);
        self.keep_queue(number);
        let queue = self.jobs.queues.at_mut(number);
        let changed = std::mem::replace(&mut queue.mode, mode) != mode;
        let view = queue.view();
        self.jobs.batch.queues.insert(number);
        self.jobs.queues.may_be_idle(number);
        if changed {
            self.jobs.queues.stirred.insert(number);
            self.note_queue_change(space, name, mode.name(), by);
        }
        Ok(view)
    }

    fn note_queue_change(&mut self, space: u32, queue: QueueName, mode: &str, by: Owner) {
        self.batch.durable = true;
        let name = format!("queue/{queue}");
        self.note_about(space, name, vec![EventData::QueueChanged { queue, mode: mode.to_owned(), by }]);
    }

    /// Removes a queue that has no jobs and no schedules. Claims that wait for its jobs go on waiting.
    pub(super) fn remove_queue(
        &mut self,
        space: u32,
        name: &QueueName,
        by: Owner,
    ) -> Result<bool, StoreError> {
        let Some(number) = self.jobs.queues.find_kept(space, name) else { return Ok(false) };
        let schedules = self.jobs.schedules.count_into(space, name);
        Contents { counts: self.jobs.queues.at(number).counts, schedules }.check(name)?;
        self.forget_queue(number);
        self.note_queue_change(space, name.clone(), "removed", by);
        Ok(true)
    }

    /// Forgets queues that have become unused, a few at a time. True: there are more to look at.
    pub(super) fn drop_idle_queues(&mut self) -> bool {
        for _ in 0..IDLE_QUEUES_AT_A_TIME {
            let Some(number) = self.jobs.queues.idle.pop_first() else { return false };
            let queue = self.jobs.queues.at(number);
            if queue.is_idle() && self.jobs.schedules.count_into(queue.space, &queue.name) == 0 {
                self.forget_queue(number);
            }
        }
        !self.jobs.queues.idle.is_empty()
    }

    fn forget_queue(&mut self, number: u32) {
        self.jobs.batch.queues.remove(&number);
        self.jobs.batch.others.push(JobChange::NoQueue { number });
        let queue = self.jobs.queues.at_mut(number);
        if let Some(used) = self.table.used_mut(queue.space) {
            used.queue_count = used.queue_count.saturating_sub(1);
        }
        let queue = self.jobs.queues.at_mut(number);
        if queue.line.is_empty() {
            self.jobs.queues.forget(number);
        } else {
            // It is what a queue is that only claims have named.
            (queue.is_kept, queue.mode) = (false, QueueMode::Open);
        }
    }
}

/// How many queues one step looks at, to see whether they are unused.
const IDLE_QUEUES_AT_A_TIME: usize = 64;
