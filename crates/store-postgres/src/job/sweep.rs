//! The background work of jobs, by the handle whose turn it is.
//!
//! Claims that have run out are decided upon by the rules; jobs whose time has come, and what is to be forgotten, are moved by
//! the database alone; schedules fire; jobs that may ask for room do so. All of it in small steps.
//!
//! Each handle keeps finished jobs for as long as its URL says, so each removes them now and then, also out of turn: the shortest time counts.

use std::rc::Rc;
use std::time::Duration;

use fencehold_contract::StoreError;
use fencehold_core::Namespace;
use fencehold_core::job::{JobId, QueueName};
use fencehold_engine::Replay;
use fencehold_net::sleep;

use super::decide::{DecisionResult, DecisionScope, decide_in, locking, read};
use super::load::ScheduleRow;
use crate::statement::{Call, query};
use crate::value::{Uuid128, to_sql};
use crate::{PostgresInner, ResendPolicy};

/// How often a handle removes what it does not keep, out of turn.
const OUT_OF_TURN: Duration = Duration::from_secs(60);
const TIMEOUT_MS: u64 = 2_000;
/// How often a handle asks whether the jobs are to be counted again: that is due once a day.
const RECOUNT_EVERY: Duration = Duration::from_secs(15 * 60);
/// Ten million jobs take some seconds.
const RECOUNT_TIMEOUT_MS: u64 = 120_000;
/// How long a step waits for what others have locked: what cannot be had now is looked at again.
const LOCK_MS: i64 = 1_000;
/// How much of everything in one step.
const STEP: i32 = 256;
/// How many schedules fire in one step.
const FIRE_MAX: i32 = 64;

/// How often a namespace with many queues is looked through for unused ones.
const UNUSED_QUEUES_EVERY_MS: u64 = 60_000;

/// What a look for claims that have run out came to.
enum SweepResult {
    /// So many were ended.
    Ended(usize),
    /// None, for the clock had jumped to this moment.
    Jumped { at_ms: i64 },
}

impl PostgresInner {
    /// Sweeps for as long as the handle lives.
    pub(super) async fn sweep_jobs(self: Rc<Self>) {
        loop {
            let in_turn = tokio::select! {
                () = self.upkeep.jobs.notified() => true,
                () = sleep(OUT_OF_TURN) => false,
            };
            loop {
                match self.sweep_once(in_turn).await {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(why) => {
                        tracing::debug!(%why, "jobs could not be swept; trying again");
                        break;
                    }
                }
            }
        }
    }

    /// Has the counts compared with the jobs where that is due, for as long as the handle lives. Apart from sweeping, for it reads all jobs.
    pub(super) async fn recount_jobs(self: Rc<Self>) {
        loop {
            sleep(RECOUNT_EVERY).await;
            let sql = "SELECT fencehold.job_recount()";
            if self.works()
                && let Err(why) = self.own_call(RECOUNT_TIMEOUT_MS).value::<bool>(sql, &[]).await
            {
                tracing::debug!(%why, "jobs could not be counted again; trying again");
            }
        }
    }

    /// One step: of everything, or out of turn only of what this handle does not keep. True: there is more.
    async fn sweep_once(&self, in_turn: bool) -> Result<bool, StoreError> {
        if !self.works() {
            return Ok(false);
        }
        let [expiry, schedules, preemption] =
            if in_turn { self.own_call(TIMEOUT_MS).work_due().await? } else { [false; 3] };
        // A part that fails, or takes too long, does not keep the others back.
        let expired = if expiry { self.own_call(TIMEOUT_MS).expire().await } else { Ok(0) };
        let more = self.own_call(TIMEOUT_MS).tidy().await;
        let fired = if schedules { self.own_call(TIMEOUT_MS).fire_schedules().await } else { Ok(0) };
        let room = if preemption { self.own_call(TIMEOUT_MS).make_room().await } else { Ok(()) };
        self.maintained("retention", more.as_ref().err()).await;
        if in_turn {
            self.maintained("expiry", expired.as_ref().err()).await;
            self.maintained("schedules", fired.as_ref().err()).await;
            self.maintained("preemption", room.as_ref().err()).await;
        }
        room?;
        Ok(more? || expired? >= STEP as usize || fired? >= FIRE_MAX as usize)
    }
}

impl Call<'_> {
    /// What there is to do: claims that have run out, schedules that are due, holders to be asked for room.
    async fn work_due(&mut self) -> Result<[bool; 3], StoreError> {
        let (expiry, schedules, preemption) = self.row("SELECT * FROM fencehold.job_work_due()", &[]).await?;
        Ok([expiry, schedules, preemption])
    }

    async fn expire(&mut self) -> Result<usize, StoreError> {
        let (core, before_ms) = (self.core, self.clock.now().store_ms);
        let decided = self
            .run(ResendPolicy::Safe, async |client, _| {
                let transaction = client.transaction().await?;
                let sql = core.sql(&locking("job_run_out($1)"));
                let rows: Vec<(Uuid128, i64)> = query(&transaction, &sql, &[&STEP]).await?;
                let Some((_, at_ms)) = rows.first() else {
                    transaction.commit().await?;
                    return Ok(DecisionResult::Kept(SweepResult::Ended(0)));
                };
                // What the clock has jumped over is not over: rolled back, and noted first.
                if core.jump(*at_ms).is_some() {
                    return Ok(DecisionResult::Kept(SweepResult::Jumped { at_ms: *at_ms }));
                }
                let ids: Vec<JobId> = rows.iter().map(|(id, _)| (*id).into()).collect();
                let about = DecisionScope::jobs(&Namespace::default(), ids.clone()).ending();
                let act = |replay: &mut Replay| {
                    replay.expire(&ids);
                    SweepResult::Ended(ids.len())
                };
                decide_in(core, transaction, &about, LOCK_MS, None, act).await
            })
            .await?;
        match self.kept(decided)? {
            Some(SweepResult::Ended(count)) => Ok(count),
            Some(SweepResult::Jumped { at_ms }) => {
                self.saw_the_clock(before_ms, at_ms).await?;
                Ok(0)
            }
            // Rolled back, all of it: the next sweep decides again.
            None => Ok(0),
        }
    }

    async fn tidy(&mut self) -> Result<bool, StoreError> {
        let kept_ms = to_sql(self.jobs.keep_finished.ms());
        let now_ms = self.clock.now().store_ms;
        let unused = now_ms >= self.jobs.queues_looked_at_ms.get().saturating_add(UNUSED_QUEUES_EVERY_MS);
        let sql = "SELECT fencehold.job_tidy($1, $2), fencehold.job_queues_tidy($2, $3)";
        let (more_jobs, more_queues): (bool, bool) = self.row(sql, &[&kept_ms, &STEP, &unused]).await?;
        if unused && !more_queues {
            self.jobs.queues_looked_at_ms.set(now_ms);
        }
        Ok(more_jobs || more_queues)
    }

    /// Fires what is due, one by one: what stands in the way of one must not keep the others from it.
    async fn fire_schedules(&mut self) -> Result<usize, StoreError> {
        let core = self.core;
        self.run(ResendPolicy::Safe, async |client, _| {
            let mut transaction = client.transaction().await?;
            let sql = core.sql(&locking("job_schedules_due($1)"));
            let due: Vec<(String,)> = query(&transaction, &sql, &[&FIRE_MAX]).await?;
            // One that cannot be read stays as it is: a newer program may understand it.
            let due = due.iter().filter_map(|(text,)| read::<ScheduleRow>("schedule", text).ok());
            let about = DecisionScope::jobs(&Namespace::default(), []);
            let mut fired = 0;
            for schedule in due.map(ScheduleRow::kept) {
                let name = schedule.spec.name.clone();
                let one = transaction.transaction().await?;
                let why = match decide_in(core, one, &about, LOCK_MS, Some(schedule), Replay::fire).await {
                    Ok(DecisionResult::Kept(())) => {
                        fired += 1;
                        continue;
                    }
                    Ok(DecisionResult::Again) => "others changed the same jobs".to_owned(),
                    Ok(DecisionResult::Damaged(why)) => why,
                    Err(error) if error.as_db_error().is_some() => error.to_string(),
                    Err(error) => return Err(error),
                };
                tracing::warn!(schedule = %name, why, "a schedule could not fire; it is tried again");
            }
            transaction.commit().await?;
            Ok(fired)
        })
        .await
    }

    /// The same for a caller that has its response already: the sweep asks again.
    pub(super) async fn make_room_or_leave_it(&mut self) {
        if let Err(why) = self.make_room().await {
            tracing::debug!(%why, "no holder could be asked for room; the sweep does it");
        }
    }

    /// Has the first jobs of their queues ask for room, where they may.
    async fn make_room(&mut self) -> Result<(), StoreError> {
        let asking: Vec<(String, String, Uuid128, Uuid128)> =
            self.rows("SELECT * FROM fencehold.job_room($1)", &[&STEP]).await?;
        for (namespace, queue, contender, victim) in asking {
            let (Ok(namespace), Ok(queue)) = (Namespace::new(namespace), QueueName::new(queue)) else {
                continue;
            };
            let about = DecisionScope::jobs(&namespace, [contender, victim].map(JobId::from));
            self.decide(ResendPolicy::Safe, &about, |replay| replay.ask_for_room(&namespace, &queue))
                .await?;
        }
        Ok(())
    }
}
