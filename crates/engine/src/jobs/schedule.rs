//! Schedules: what to enqueue when. Each firing makes one job, named after its moment, so that it is made once.

use std::collections::{BTreeMap, BTreeSet};

use fencehold_contract::StoreError;
use fencehold_contract::job::{NewJob, ScheduleSpec, ScheduleView};
use fencehold_contract::quota::Limited;
use fencehold_core::job::schedule::{Cron, Zone};
use fencehold_core::job::{Due, JobId, QueueName, ScheduleName};
use fencehold_core::{BadInput, EventData, Timestamp};
use hashbrown::HashMap;

use super::archive::{JobChange, StoredSchedule};
use crate::state::Engine;
use crate::step::Step;

/// How many schedules fire in one step.
const FIRE_MAX: usize = 64;
/// A wall clock that was set back by less is taken for one that runs a little slow.
const STEP_BACK_MS: i128 = 1_000;

#[derive(Debug, Default)]
pub(super) struct ScheduleTable {
    all: BTreeMap<(u32, ScheduleName), ScheduleState>,
    due: BTreeSet<(u64, u32, ScheduleName)>,
    /// How many put their jobs into which queue.
    queues: HashMap<(u32, QueueName), u64>,
    /// The furthest that the wall clock was ahead of store time since the next moments were last looked for.
    wall_ahead_ms: i128,
}

#[derive(Debug)]
struct ScheduleState {
    spec: ScheduleSpec,
    cron: Cron,
    zone: Zone,
    next_wall_ms: Option<u64>,
    last_wall_ms: Option<u64>,
}

impl ScheduleState {
    /// Its next moment: the one that is noted, unless another comes before it by what the wall clock shows now. Where the
    /// clock was ahead and was set right, the noted one may be years away.
    fn next_wall_ms(&self, now: Timestamp) -> Option<u64> {
        let noted_ms = self.next_wall_ms?;
        if noted_ms <= now.wall_ms {
            return Some(noted_ms);
        }
        let next_ms = self.cron.next_after(now.wall_ms, &self.zone);
        Some(next_ms.map_or(noted_ms, |next_ms| next_ms.min(noted_ms)))
    }

    fn view(&self) -> ScheduleView {
        ScheduleView {
            spec: self.spec.clone(),
            next_run_at_ms: self.next_wall_ms,
            last_run_at_ms: self.last_wall_ms,
        }
    }
}

impl ScheduleTable {
    pub(super) fn next_wall_ms(&self) -> Option<u64> {
        self.due.first().map(|(at_ms, ..)| *at_ms)
    }

    fn put(&mut self, space: u32, schedule: ScheduleState) {
        let name = schedule.spec.name.clone();
        self.remove(space, &name);
        if let Some(next_ms) = schedule.next_wall_ms {
            self.due.insert((next_ms, space, name.clone()));
        }
        *self.queues.entry((space, schedule.spec.queue.clone())).or_default() += 1;
        self.all.insert((space, name), schedule);
    }

    /// How many a namespace has.
    pub(super) fn in_space(&self, space: u32) -> u64 {
        self.all.keys().filter(|(at, _)| *at == space).count() as u64
    }

    /// How many put their jobs into this queue.
    pub(super) fn count_into(&self, space: u32, queue: &QueueName) -> u64 {
        self.queues.get(&(space, queue.clone())).copied().unwrap_or(0)
    }

    fn remove(&mut self, space: u32, name: &ScheduleName) -> Option<ScheduleState> {
        let schedule = self.all.remove(&(space, name.clone()))?;
        if let Some(next_ms) = schedule.next_wall_ms {
            self.due.remove(&(next_ms, space, name.clone()));
        }
        let queue = (space, schedule.spec.queue.clone());
        if let Some(count) = self.queues.get_mut(&queue) {
            *count -= 1;
            if *count == 0 {
                self.queues.remove(&queue);
            }
        }
        Some(schedule)
    }

    /// Looks for every next moment anew, once the wall clock was set back.
    pub(super) fn wall_clock_shows(&mut self, now: Timestamp, ahead_ms: i128) {
        if ahead_ms + STEP_BACK_MS >= self.wall_ahead_ms {
            self.wall_ahead_ms = self.wall_ahead_ms.max(ahead_ms);
            return;
        }
        self.wall_ahead_ms = ahead_ms;
        for ((space, name), schedule) in &mut self.all {
            let next_wall_ms = schedule.next_wall_ms(now);
            let noted_ms = std::mem::replace(&mut schedule.next_wall_ms, next_wall_ms);
            if let (Some(noted_ms), Some(next_ms)) = (noted_ms, next_wall_ms) {
                self.due.remove(&(noted_ms, *space, name.clone()));
                self.due.insert((next_ms, *space, name.clone()));
            }
        }
    }

    pub(super) fn restore(&mut self, now: Timestamp, space: u32, kept: StoredSchedule) {
        let StoredSchedule { spec, next_wall_ms, last_wall_ms, .. } = kept;
        // It was understood when it was made; a later version that does not understand it any more leaves it out.
        if let (Ok(cron), Ok(zone)) = (Cron::parse(&spec.cron), Zone::parse(&spec.time_zone)) {
            let schedule = ScheduleState { spec, cron, zone, next_wall_ms, last_wall_ms };
            let next_wall_ms = schedule.next_wall_ms(now);
            self.put(space, ScheduleState { next_wall_ms, ..schedule });
        }
    }
}

impl Step<'_> {
    /// Fires what is due. What fell due while no process served is made up for by one firing. True: there is more.
    pub(super) fn fire_schedules(&mut self) -> bool {
        for _ in 0..FIRE_MAX {
            let due = self.jobs.schedules.due.first();
            let due = due.filter(|(at_ms, ..)| *at_ms <= self.now.wall_ms).cloned();
            let Some((due_wall_ms, space, name)) = due else { return false };
            let Some(schedule) = self.jobs.schedules.remove(space, &name) else { continue };
            self.fire(space, &schedule, due_wall_ms);
            let next_wall_ms = schedule.cron.next_after(self.now.wall_ms.max(due_wall_ms), &schedule.zone);
            let fired = ScheduleState { next_wall_ms, last_wall_ms: Some(due_wall_ms), ..schedule };
            self.keep_schedule(space, fired);
        }
        true
    }

    fn fire(&mut self, space: u32, schedule: &ScheduleState, due_wall_ms: u64) {
        let spec = &schedule.spec;
        let id = JobId::due(due_wall_ms, &format!("{}/{}", self.namespace(space), spec.name));
        let id = self.id_here(space, id);
        if self.find_job(space, id).is_ok() {
            return;
        }
        let job = NewJob::new(id, spec.queue.clone(), spec.kind.clone(), spec.payload.clone());
        let job = NewJob { options: spec.options, labels: spec.labels.clone(), ..job };
        self.add_job(space, job, Due::Now, None);
        let fact = EventData::ScheduleFired { schedule: spec.name.clone(), due_at_ms: due_wall_ms };
        self.note_about(space, format!("schedule/{}", spec.name), vec![fact]);
    }
}

impl Engine {
    pub(super) fn schedule_views(&self, space: u32) -> Vec<ScheduleView> {
        let own = self.jobs.schedules.all.iter().filter(|((at, _), _)| *at == space);
        own.map(|(_, schedule)| schedule.view()).collect()
    }

    pub(super) fn set_schedule(
        &mut self,
        space: u32,
        spec: ScheduleSpec,
    ) -> Result<ScheduleView, StoreError> {
        let cron = Cron::parse(&spec.cron)?;
        let zone = Zone::parse(&spec.time_zone)?;
        let earlier = self.jobs.schedules.all.get(&(space, spec.name.clone()));
        if earlier.is_none() {
            self.check_quota(space, Limited::Schedules, 1)?;
        }
        let left = earlier
            .map(|earlier| earlier.spec.queue.clone())
            .filter(|queue| *queue != spec.queue);
        let last_wall_ms = earlier.and_then(|schedule| schedule.last_wall_ms);
        let next_wall_ms = match earlier {
            // Sent twice, it stays as it is: what is due but has not fired yet is not put off.
            Some(earlier) if earlier.spec.cron == spec.cron && earlier.spec.time_zone == spec.time_zone => {
                earlier.next_wall_ms(self.now)
            }
            _ => cron.next_after(self.now.wall_ms, &zone),
        };
        if next_wall_ms.is_none() {
            return Err(BadInput::new("cron line", format!("{:?} never comes to pass", spec.cron)).into());
        }
        let schedule = ScheduleState { spec, cron, zone, next_wall_ms, last_wall_ms };
        let view = schedule.view();
        self.keep_schedule(space, schedule);
        if let Some(queue) = left {
            self.jobs.queues.is_left_by_schedule(space, &queue);
        }
        self.batch.durable = true;
        Ok(view)
    }

    /// False: there is none.
    pub(super) fn remove_schedule(&mut self, space: u32, name: ScheduleName) -> bool {
        let Some(schedule) = self.jobs.schedules.remove(space, &name) else { return false };
        self.jobs.queues.is_left_by_schedule(space, &schedule.spec.queue);
        let namespace = self.namespace(space);
        self.jobs.batch.others.push(JobChange::NoSchedule { namespace, name });
        self.batch.durable = true;
        true
    }

    fn keep_schedule(&mut self, space: u32, schedule: ScheduleState) {
        self.table.keep_space(space);
        let kept = StoredSchedule {
            namespace: self.namespace(space),
            spec: schedule.spec.clone(),
            next_wall_ms: schedule.next_wall_ms,
            last_wall_ms: schedule.last_wall_ms,
        };
        self.jobs.batch.others.push(JobChange::Schedule(Box::new(kept)));
        self.jobs.schedules.put(space, schedule);
    }

    /// Keeps the schedules that are not due as they are seen now: their next moments were looked for anew when they were loaded.
    pub(super) fn keep_next_moments(&mut self) {
        let later = self.jobs.schedules.due.iter().filter(|(at_ms, ..)| *at_ms > self.now.wall_ms);
        let later: Vec<_> = later.map(|(_, space, name)| (*space, name.clone())).collect();
        for (space, name) in later {
            if let Some(schedule) = self.jobs.schedules.remove(space, &name) {
                self.keep_schedule(space, schedule);
            }
        }
    }
}
