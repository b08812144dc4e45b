//! Putting jobs into their queues: once each, whatever is sent twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use fencehold_contract::StoreError;
use fencehold_contract::job::{CompensatedEffect, EnqueuedJob, NewJob, QueueMode};
use fencehold_contract::operation::check_job;
use fencehold_contract::quota::Limited;
use fencehold_core::job::{Due, JobId, JobKind, JobRecord, JobRefusal, JobState, QueueName, UniqueKey};
use fencehold_core::limits::JOBS_MAX;
use fencehold_core::{EventData, Timestamp};
use hashbrown::HashMap;
use sha2::{Digest, Sha256};

use super::ItemResult;
use super::archive::{JobBody, JobChange, JobSummary, StoredJob, StoredUnique};
use super::canonical::{canonical, same_json};
use crate::state::Engine;
use crate::step::Step;

/// How precisely the ends of windows are noted: a key may stay taken for so much longer.
const WINDOW_STEP_MS: u64 = 60_000;

/// A unique key that is taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct UniqueJob {
    pub(super) job: JobId,
    /// What the request that took it is recognised by.
    pub(super) payload: [u8; 16],
    pub(super) until_ms: u64,
}

#[derive(Debug, Default)]
pub(super) struct UniqueJobs {
    taken: HashMap<(u32, [u8; 16]), UniqueJob>,
    /// Which may be forgotten when.
    by_end: BTreeMap<u64, Vec<(u32, [u8; 16])>>,
}

impl UniqueJobs {
    pub(super) fn get(&self, space: u32, key: [u8; 16]) -> Option<UniqueJob> {
        self.taken.get(&(space, key)).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    fn take(&mut self, space: u32, key: [u8; 16], taken: UniqueJob) {
        self.taken.insert((space, key), taken);
        self.by_end
            .entry(taken.until_ms / WINDOW_STEP_MS)
            .or_default()
            .push((space, key));
    }

    pub(super) fn free(&mut self, space: u32, key: [u8; 16]) -> bool {
        self.taken.remove(&(space, key)).is_some()
    }

    pub(super) fn restore(&mut self, space: u32, kept: &StoredUnique) {
        let StoredUnique { key, job, payload, until_ms, .. } = *kept;
        self.take(space, key, UniqueJob { job, payload, until_ms });
    }

    /// Keys whose window may have ended by this moment, a few at a time.
    pub(super) fn ended(&mut self, now_ms: u64, most: usize) -> Vec<(u32, [u8; 16])> {
        let mut ended = Vec::new();
        while ended.len() < most
            && let Some(mut first) = self.by_end.first_entry()
            && *first.key() < now_ms / WINDOW_STEP_MS
        {
            let keys = first.get_mut();
            let left = keys.len().saturating_sub(most - ended.len());
            ended.extend(keys.drain(left..));
            if keys.is_empty() {
                first.remove();
            }
        }
        ended
    }

    /// Looks at a key again in one step's time: its job is not done.
    pub(super) fn put_off(&mut self, space: u32, key: [u8; 16], now_ms: u64) {
        self.by_end.entry(now_ms / WINDOW_STEP_MS + 1).or_default().push((space, key));
    }
}

/// The clock by which windows are counted: elapsed time, whatever the wall clock is set to.
pub(super) fn window_clock_ms(now: Timestamp) -> u64 {
    now.store_ms
}

/// What a text is recognised by.
pub fn digest(text: &str) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&Sha256::digest(text)[..16]);
    short
}

/// What a request is recognised by: the same queue, kind and payload, however that was written.
pub(super) fn identity(queue: &QueueName, kind: &JobKind, payload: &str) -> [u8; 16] {
    digest(&format!("{queue}\n{kind}\n{}", canonical(payload)))
}

/// What is not the same about the job that came first, if anything.
fn difference(first: &JobBody, queue: &QueueName, kind: &JobKind, payload: &str) -> Option<&'static str> {
    if first.queue != *queue {
        Some("queue")
    } else if first.kind != *kind {
        Some("kind")
    } else {
        (!same_json(&first.payload, payload)).then_some("payload")
    }
}

pub(super) fn conflict(field: &str, first: JobId, differs: &str) -> JobRefusal {
    JobRefusal::Conflict { field: field.to_owned(), job_id: first, differs: differs.to_owned() }
}

/// What a unique key is recognised by. Keys of operations are apart from those of jobs.
pub fn unique_digest(kind: &str, key: &UniqueKey) -> [u8; 16] {
    digest(&format!("{kind}:{key}"))
}

impl Step<'_> {
    pub(super) fn enqueue(&mut self, space: u32, job: NewJob) -> ItemResult<EnqueuedJob> {
        let due = check_job(&job, self.now)?;
        if let Some(found) = self.job_with_id(space, job.id)? {
            if let Some(differs) = difference(&found, &job.queue, &job.kind, &job.payload) {
                return Err(conflict("id", job.id, differs));
            }
            return Ok(EnqueuedJob { job_id: job.id, existed: true });
        }
        let unique = job.unique.as_ref();
        let unique = unique.map(|unique| (unique_digest("job", &unique.key), unique.window_ms));
        let payload = if unique.is_some() { identity(&job.queue, &job.kind, &job.payload) } else { [0; 16] };
        if let Some((key, _)) = unique
            && let Some(taken) = self.taken_by(space, key)
        {
            let same = (&job.queue, &job.kind, &*job.payload, payload);
            if let Some(differs) = self.differs_from_first(space, taken, same) {
                return Err(conflict("unique_key", taken.job, differs));
            }
            return Ok(EnqueuedJob { job_id: taken.job, existed: true });
        }
        if let Some(number) = self.jobs.queues.find(space, &job.queue)
            && self.jobs.queues.at(number).mode == QueueMode::Draining
        {
            return Err(JobRefusal::QueueDraining { queue: job.queue });
        }
        self.check_room_for_job(space, &job.queue, job.payload.len())?;
        if self.jobs.live() >= JOBS_MAX {
            let message = "jobs of this store".to_owned();
            return Err(JobRefusal::LimitReached { message, limit: JOBS_MAX });
        }
        if let Some((key, window_ms)) = unique {
            let until_ms = window_clock_ms(self.now).saturating_add(window_ms);
            self.take_unique(space, key, UniqueJob { job: job.id, payload, until_ms });
        }
        let id = job.id;
        self.add_job(space, job, due, None);
        Ok(EnqueuedJob { job_id: id, existed: false })
    }

    /// What is not the same about the request that took a key first, if anything. What a request is recognised by comes with
    /// it; stores of earlier versions kept that of the payload's text alone, so the first job itself is looked at.
    pub(super) fn differs_from_first(
        &mut self,
        space: u32,
        taken: UniqueJob,
        (queue, kind, payload, identity): (&QueueName, &JobKind, &str, [u8; 16]),
    ) -> Option<&'static str> {
        if taken.payload == identity {
            return None;
        }
        let arrival = self.find_slot(space, taken.job).map(|slot| slot.arrival);
        match arrival.and_then(|arrival| self.body(arrival)) {
            Some(first) => difference(&first, queue, kind, payload),
            None => (taken.payload != digest(payload)).then_some("payload"),
        }
    }

    /// Whose a unique key is at this moment: for its window, and until its job has come to its end.
    pub(super) fn taken_by(&mut self, space: u32, key: [u8; 16]) -> Option<UniqueJob> {
        let taken = self.jobs.uniques.get(space, key)?;
        if window_clock_ms(self.now) < taken.until_ms {
            return Some(taken);
        }
        let is_final = self.find_slot(space, taken.job)?.record.state.is_final();
        (!is_final).then_some(taken)
    }

    /// The id that follows from something of this namespace. An id names one job in the whole store: where another
    /// namespace has taken this one, whether by chance or to be in the way, it is the next that follows from it.
    pub(super) fn id_here(&mut self, space: u32, mut id: JobId) -> JobId {
        while self.find_job(space, id).is_err() && self.jobs.table.find(id).is_some() {
            id = id.following("taken elsewhere");
        }
        id
    }

    /// The body of the job that has this id already.
    pub(super) fn job_with_id(&mut self, space: u32, id: JobId) -> ItemResult<Option<Arc<JobBody>>> {
        if !self.jobs.ids.may_have(id) {
            return Ok(None);
        }
        let Some(arrival) = self.find_slot(space, id).map(|slot| slot.arrival) else {
            // Of another namespace, or of none. An id names one job, so another namespace's cannot be used here; but it is
            // none of this one's business whose it is.
            return if self.jobs.table.find(id).is_some() { Err(JobRefusal::JobNotFound) } else { Ok(None) };
        };
        Ok(self.body(arrival))
    }

    /// Forgets unique keys whose window has ended and whose job is done, or gone. One that failed or was cancelled may be made to
    /// go on: it has its key again then, unless it was taken meanwhile; that must not depend on who looked when. True: there
    /// may be more.
    pub(super) fn free_uniques(&mut self) -> bool {
        const AT_A_TIME: usize = 256;
        let now_ms = window_clock_ms(self.now);
        let ended = self.jobs.uniques.ended(now_ms, AT_A_TIME);
        let more = ended.len() == AT_A_TIME;
        for (space, key) in ended {
            let Some(taken) = self.jobs.uniques.get(space, key) else { continue };
            let slot = self.find_slot(space, taken.job);
            let may_go_on = slot.is_some_and(|slot| slot.record.state != JobState::Completed);
            if may_go_on || now_ms < taken.until_ms {
                self.jobs.uniques.put_off(space, key, now_ms);
            } else {
                self.drop_unique(space, key);
            }
        }
        more
    }
}

impl Engine {
    /// Whether a namespace has room for one more job.
    pub(super) fn check_room_for_job(&self, space: u32, queue: &QueueName, bytes: usize) -> ItemResult<()> {
        let has_room = || {
            if self.jobs.queues.find_kept(space, queue).is_none() {
                self.check_quota(space, Limited::Queues, 1)?;
            }
            self.check_quota(space, Limited::Jobs, 1)?;
            self.check_quota(space, Limited::Bytes, bytes as u64)
        };
        has_room().map_err(|full| match full {
            StoreError::LimitReached { message, limit } => JobRefusal::LimitReached { message, limit },
            other => JobRefusal::LimitReached { message: other.to_string(), limit: 0 },
        })
    }

    pub(super) fn take_unique(&mut self, space: u32, key: [u8; 16], taken: UniqueJob) {
        self.table.keep_space(space);
        self.jobs.uniques.take(space, key, taken);
        let UniqueJob { job, payload, until_ms } = taken;
        let namespace = self.namespace(space);
        let kept = StoredUnique { namespace, key, job, payload, until_ms };
        self.jobs.batch.others.push(JobChange::Unique(kept));
    }

    /// Makes a job. It has been looked at.
    pub(super) fn add_job(
        &mut self,
        space: u32,
        job: NewJob,
        due: Due,
        undo_of: Option<CompensatedEffect>,
    ) -> u32 {
        self.table.keep_space(space);
        let queue = self.jobs.queues.find_or_insert(space, &job.queue);
        self.keep_queue(queue);
        self.jobs.last_arrival += 1;
        self.jobs.ids.add(job.id);
        let arrival = self.jobs.last_arrival;
        let record = JobRecord::due(job.options, due, self.now);
        let state = record.state;
        let about = JobSummary {
            bytes: u32::try_from(job.payload.len()).unwrap_or(u32::MAX),
            yield_within_ms: u32::try_from(job.preempt_within_ms.unwrap_or(0)).unwrap_or(u32::MAX),
            undoes: undo_of.is_some(),
        };
        let fact = EventData::JobEnqueued { queue: job.queue.clone(), kind: job.kind.clone(), state };
        let body = Arc::new(JobBody {
            namespace: self.namespace(space),
            queue: job.queue,
            kind: job.kind,
            payload: job.payload,
            labels: job.labels,
            trace: job.traceparent,
            unique: job.unique.map(|unique| unique.key),
            yield_within_ms: job.preempt_within_ms,
            enqueued_wall_ms: self.now.wall_ms,
            undo_of,
        });
        let at = self.jobs.table.insert(StoredJob {
            arrival,
            id: job.id,
            queue,
            record,
            deadline_ms: 0,
            about,
            reopened: false,
            renewed: false,
        });
        self.jobs.batch.bodies.insert(arrival, (job.id, body));
        self.jobs.touch(at);
        self.batch.durable = true;
        self.take_place(at);
        self.note_job(space, job.id, vec![fact]);
        at
    }

    pub(super) fn drop_unique(&mut self, space: u32, key: [u8; 16]) {
        if self.jobs.uniques.free(space, key) {
            let namespace = self.namespace(space);
            self.jobs.batch.others.push(JobChange::NoUnique { namespace, key });
        }
    }
}
