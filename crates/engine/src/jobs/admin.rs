//! What operators do: call jobs off, have them start over, forget them; pause, resume and drain queues.

use fencehold_contract::StoreError;
use fencehold_contract::job::{
    ChangeJobBatchResponse, ChangeJobResult, ChangeJobsRequest, Contents, JobAction, JobFilter, JobSelector,
    QueueMode, QueueView, SetQueueModeRequest,
};
use fencehold_contract::operation::JobResponse;
use fencehold_contract::quota::Limited;
use fencehold_core::job::{JobCommand, JobCommandResult, JobId, JobRefusal, JobState, QueueName};
use fencehold_core::{EventData, Owner, Timestamp};

use super::JobSlotChange;
use super::archive::{Archive, JobChange};
use super::enqueue::unique_digest;
use super::queues::QueueState;
use crate::state::Engine;

impl Engine {
    pub(super) fn act(
        &mut self,
        now: Timestamp,
        space: u32,
        request: ChangeJobsRequest,
        archive: &mut dyn Archive,
    ) -> JobResponse {
        let (ids, next) = match &request.selector {
            JobSelector::Ids { job_ids } => (job_ids.clone(), None),
            JobSelector::Filter { filter } => self.matching(now, space, filter, &request, archive),
            JobSelector::All {} => self.matching(now, space, &JobFilter::default(), &request, archive),
        };
        let items = ids
            .into_iter()
            .map(|id| ChangeJobResult { job_id: id, result: self.act_on(now, space, id, &request, archive) })
            .collect();
        JobResponse::Changed(ChangeJobBatchResponse { results: items, next_cursor: next })
    }

    /// The jobs of one page. Nothing comes in between: they are changed in the same step.
    fn matching(
        &mut self,
        now: Timestamp,
        space: u32,
        filter: &JobFilter,
        request: &ChangeJobsRequest,
        archive: &mut dyn Archive,
    ) -> (Vec<JobId>, Option<u64>) {
        let mut ids: Vec<JobId> = Vec::new();
        let (cursor, limit) = (request.cursor, request.limit);
        let next = self.each_match(now, space, filter, cursor, limit, archive, &mut |slot, _| {
            ids.push(slot.id);
        });
        (ids, self.archived(next).flatten())
    }

    fn act_on(
        &mut self,
        now: Timestamp,
        space: u32,
        id: JobId,
        request: &ChangeJobsRequest,
        archive: &mut dyn Archive,
    ) -> Result<JobState, JobRefusal> {
        let at = self.find_job(space, id, archive)?;
        let by = request.by.clone();
        let command = match &request.action {
            JobAction::Cancel { reason, force: now } => {
                JobCommand::Cancel { by, reason: reason.clone(), now: *now }
            }
            JobAction::Retry => JobCommand::Retry { by },
            JobAction::Delete { force } => JobCommand::Delete { force: *force },
        };
        if request.dry_run {
            return self.would(now, at, &command);
        }
        let stood = self
            .jobs
            .table
            .at(at)
            .map_or(JobState::Completed, |slot| slot.record.state_at(now));
        if self.apply_to_job(now, at, &command, archive)? == JobCommandResult::Deleted {
            self.delete(now, space, at, &request.by, archive);
            return Ok(stood);
        }
        self.withdraw_notice_if_gone(now, at, archive);
        Ok(self.jobs.table.at(at).map_or(stood, |slot| slot.record.state_at(now)))
    }

    /// What a command would lead to.
    fn would(&self, now: Timestamp, at: u32, command: &JobCommand) -> Result<JobState, JobRefusal> {
        let slot = self.jobs.table.at(at).ok_or(JobRefusal::JobNotFound)?;
        let standing =
            fencehold_core::job::JobStanding { now, newest: self.jobs.newest, term: slot.term(now.store_ms) };
        let decision = fencehold_core::job::decide(&standing, &slot.record, command);
        decision.reply?;
        Ok(decision.record.as_ref().unwrap_or(&slot.record).state_at(now))
    }

    /// Forgets a job with all that belongs to it.
    fn delete(&mut self, now: Timestamp, space: u32, at: u32, by: &Owner, archive: &mut dyn Archive) {
        let Some(slot) = self.jobs.table.at(at) else { return };
        let (id, state) = (slot.id, slot.record.state_at(now));
        let forced = state == JobState::Running;
        self.note_job(now, space, id, vec![EventData::JobDeleted { by: by.clone(), state, forced }]);
        self.remove_job(now, space, at, archive);
    }

    /// Removes a job from memory and from the archive, and frees its unique key.
    pub(super) fn remove_job(&mut self, now: Timestamp, space: u32, at: u32, archive: &mut dyn Archive) {
        self.answer_waits(at);
        let Some(arrival) = self.jobs.table.at(at).map(|slot| slot.arrival) else { return };
        if let Some(body) = self.body(arrival, archive)
            && let Some(key) = &body.unique
        {
            self.free_unique_of(space, at, unique_digest("job", key));
            self.free_unique_of(space, at, unique_digest("operation", key));
        }
        self.withdraw_notice_for(now, at, archive);
        self.jobs.forget_notice_of(at);
        self.leave_place(at);
        self.jobs.table.remove(at);
        self.jobs.ledgers.remove(&at);
        self.jobs.batch.leaving.retain(|other| *other != at);
        self.jobs.batch.bodies.remove(&arrival);
        self.jobs.batch.touched.insert(arrival, JobSlotChange::Drop);
        self.batch.durable = true;
    }

    fn free_unique_of(&mut self, space: u32, at: u32, key: [u8; 16]) {
        let id = self.jobs.table.at(at).map(|slot| slot.id);
        if self.jobs.uniques.get(space, key).is_some_and(|taken| Some(taken.job) == id) {
            self.drop_unique(space, key);
        }
    }

    /// A job that is not ready any more asks no holder to yield.
    fn withdraw_notice_if_gone(&mut self, now: Timestamp, at: u32, archive: &mut dyn Archive) {
        let ready = self
            .jobs
            .table
            .at(at)
            .is_some_and(|slot| slot.record.state_at(now) == JobState::Queued);
        if !ready {
            self.withdraw_notice_for(now, at, archive);
        }
    }

    pub(super) fn queue_views(&self, space: u32) -> Vec<QueueView> {
        let mut views: Vec<QueueView> = self.jobs.queues.of_space(space).map(QueueState::view).collect();
        views.sort_by(|a, b| a.name.cmp(&b.name));
        views
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
        now: Timestamp,
        space: u32,
        order: &SetQueueModeRequest,
    ) -> Result<JobResponse, StoreError> {
        let known = self.jobs.queues.find(space, &order.queue);
        if known.is_none_or(|number| !self.jobs.queues.at(number).is_kept) {
            self.check_quota(space, Limited::Queues, 1)?;
        }
        self.table.keep_space(space);
        let number = self.jobs.queues.find_or_insert(space, &order.queue);
        self.keep_queue(number);
        let queue = self.jobs.queues.at_mut(number);
        let changed = std::mem::replace(&mut queue.mode, order.mode) != order.mode;
        let view = queue.view();
        self.jobs.batch.queues.insert(number);
        self.jobs.queues.may_be_idle(number);
        if changed {
            self.jobs.queues.stirred.insert(number);
            self.batch.durable = true;
            let mode = order.mode.name().to_owned();
            let fact = EventData::QueueChanged { queue: order.queue.clone(), mode, by: order.by.clone() };
            if let Ok(key) = fencehold_core::Key::new(format!("queue/{}", order.queue)) {
                self.note(now, space, &key, vec![fact]);
            }
        }
        Ok(JobResponse::Queue(view))
    }

    /// Removes a queue that has no jobs and no schedules. Claims that wait for its jobs go on waiting.
    pub(super) fn remove_queue(
        &mut self,
        now: Timestamp,
        space: u32,
        name: &QueueName,
        by: &Owner,
    ) -> Result<JobResponse, StoreError> {
        let number = self.jobs.queues.find(space, name);
        let Some(number) = number.filter(|number| self.jobs.queues.at(*number).is_kept) else {
            return Ok(JobResponse::Deleted(false));
        };
        let schedules = self.jobs.schedules.count_into(space, name);
        let contents = Contents { counts: self.jobs.queues.at(number).counts, schedules };
        contents.check(name)?;
        self.forget_queue(number);
        self.batch.durable = true;
        let fact =
            EventData::QueueChanged { queue: name.clone(), mode: "removed".to_owned(), by: by.clone() };
        if let Ok(key) = fencehold_core::Key::new(format!("queue/{name}")) {
            self.note(now, space, &key, vec![fact]);
        }
        Ok(JobResponse::Deleted(true))
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
