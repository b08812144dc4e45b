//! The end of every story: when the trouble has stopped, everything must finish. Every key can be had, and every job comes
//! to its end.

use fencehold_contract::job::{AttemptReport, ClaimJobsRequest, QueueMode, Report, SetQueueModeRequest};

use super::owner::request;
use super::store::{SimCaller, StepResult};
use super::world::{AFTERMATH_MS, SimResponse, Simulation};
use crate::simulated::{ImageState, MachineRequest, MachineResponse};

/// How often the last worker asks for what is left. Jobs come back once for each that undoes an effect.
const ROUNDS_MAX: usize = 200;
/// So many times in a row there is nothing: then nothing is left.
const EMPTY_ROUNDS: usize = 12;
/// Every job that waits for a moment of the wall clock has it this long after the latest that the clock has shown.
const MOMENTS_WITHIN_MS: u64 = 10_000;
/// How often the schedule of a story fires.
const BEATS_EVERY_MS: u64 = 60_000;
/// How many jobs it takes at a time.
const AT_A_TIME: usize = 50;

impl Simulation {
    /// Whatever died, stalled or was lost: in the end every key can be had, and every job is over.
    pub(super) fn finale(&mut self) -> Result<(), String> {
        self.now_ms += AFTERMATH_MS;
        self.store_paused_until_ms = 0;
        while !self.store.serves() {
            self.now_ms += 1;
            self.store_starts(ImageState::SameBoot)?;
        }
        for at in 0..self.keys.len() {
            let hold = self.fresh_hold();
            let ask = request(vec![self.keys[at].clone()], hold, "the last", 1_000, 0);
            if !matches!(
                self.asks_at_last(MachineRequest::Acquire(ask))?,
                Some(Ok(MachineResponse::Acquired(_)))
            ) {
                return Err(format!("P10: {} cannot be had after everything has ended", self.keys[at]));
            }
        }
        self.schedules_go_on()?;
        // What waits for a moment of the wall clock has its moment, however far the clock was set back.
        let behind_ms = self.wall_ms_latest.saturating_sub(self.stamp().wall_ms);
        self.now_ms += behind_ms + MOMENTS_WITHIN_MS;
        self.finishes_all_jobs()?;
        self.tally.operations += self.store.decided;
        self.history.is_linearizable()
    }

    /// One question, answered at once: there is no network and no trouble any more.
    fn asks_at_last(&mut self, question: MachineRequest) -> Result<Option<SimResponse>, String> {
        let caller = SimCaller { owner: 0, life: self.owners[0].life, sent_ms: self.now_ms };
        let now = self.stamp();
        match self.store.step(now, vec![(caller, question)], &mut self.random, |_| true)? {
            StepResult::Kept(told) => Ok(told.into_iter().next().map(|(_, _, answer)| answer)),
            StepResult::Stopped => Err("the store stops although nothing is wrong".to_owned()),
        }
    }

    /// Whatever the wall clock has shown: a schedule fires at the next of its moments.
    fn schedules_go_on(&mut self) -> Result<(), String> {
        let before_ms = self.stamp().wall_ms;
        let shown = self.looks_at_schedules()?;
        self.now_ms += BEATS_EVERY_MS + 1_000;
        for before in &shown {
            let after = self.looks_at_schedules()?;
            let name = &before.spec.name;
            let last_ms = after
                .iter()
                .find(|view| view.spec.name == *name)
                .and_then(|view| view.last_run_at_ms);
            if last_ms.is_none_or(|last_ms| last_ms < before_ms) {
                return Err(format!(
                    "P10: the schedule {name} fires once a minute, and has been silent for over a minute; its next moment \
                     was said to be {:?} at {before_ms}",
                    before.next_run_at_ms
                ));
            }
            self.tally.count("schedule: fired");
            let by = self.owners[0].signs();
            self.asks_at_last(MachineRequest::RemoveSchedule(name.clone(), by))?;
        }
        Ok(())
    }

    fn looks_at_schedules(&mut self) -> Result<Vec<fencehold_contract::job::ScheduleView>, String> {
        // What has fired comes with the next answer.
        self.asks_at_last(MachineRequest::Schedules)?;
        match self.asks_at_last(MachineRequest::Schedules)? {
            Some(Ok(MachineResponse::Schedules(views))) => Ok(views),
            other => Err(format!("schedules cannot be looked at: {other:?}")),
        }
    }

    /// The last worker takes and completes what is left, until nothing is.
    fn finishes_all_jobs(&mut self) -> Result<(), String> {
        let by = self.owners[0].signs();
        for queue in self.queues.clone() {
            let order = SetQueueModeRequest { queue, mode: QueueMode::Open, by: by.clone() };
            self.asks_at_last(MachineRequest::SetQueue(order))?;
        }
        let mut empty_rounds = 0;
        for _ in 0..ROUNDS_MAX {
            // The sweep goes in small steps, and what has run out comes back after a while.
            self.now_ms += 10_000;
            let hold = self.fresh_hold();
            let claim = ClaimJobsRequest {
                queues: self.queues.iter().map(|queue| (queue.clone(), 1)).collect(),
                limit: AT_A_TIME,
                hold_id: hold,
                owner: by.clone(),
                ttl_ms: 1_000,
                wait_ms: 0,
                waited_before_ms: 0,
            };
            let Some(Ok(MachineResponse::Claimed(claimed))) =
                self.asks_at_last(MachineRequest::Claim(claim))?
            else {
                return Err("a claim was not answered".to_owned());
            };
            empty_rounds = if claimed.jobs.is_empty() { empty_rounds + 1 } else { 0 };
            if empty_rounds > EMPTY_ROUNDS {
                break;
            }
            for job in claimed.jobs {
                let attempt =
                    fencehold_contract::job::AttemptRef { job_id: job.id, hold_id: hold, token: job.token };
                let report = AttemptReport { attempt, report: Report::Complete { result: None } };
                self.asks_at_last(MachineRequest::Report(vec![report]))?;
            }
        }
        for id in self.job_ids.clone() {
            self.asks_at_last(MachineRequest::Job(id))?;
        }
        self.store.accounts.nothing_is_left()
    }
}
