//! R47, owners that live for a second: Every day a process comes, works off one job, and ends after a second. Nothing serves the
//! store in between.

use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest, NewJob, Report, Unique};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, JobKind, QueueName, UniqueKey};
use fencehold_core::limits::FINISHED_KEPT_MS;
use fencehold_test_store::Power;

use super::Race;
use crate::stage::{Played, Stage, Stop};

pub(super) const RACE: Race = Race {
    id: "R47",
    name: "owners that live for a second",
    promise: "P10 Nothing to clean",
    schedule: "Every day a process works off one job under the same unique key, and ends after a second",
    must_hold: "each day's job is a new one, and finished jobs are removed when their time is over",
    naive: None,
    script,
};

const DAY_MS: u64 = 24 * 60 * 60 * 1000;
const DAYS: u64 = 10;
/// A finished job may be there for as long as it is kept and a day more: nothing removes it before the next process comes.
const KEPT_DAYS: u64 = FINISHED_KEPT_MS / DAY_MS + 1;

fn script(stage: &Stage) -> Played {
    stage.needs(Power::MovesTime, "its time cannot be moved")?;
    stage.needs(Power::Restarts, "it cannot be restarted")?;
    stage.keeps_jobs()?;
    let call = &stage.ours()?.call;
    let broken = |error: &dyn std::fmt::Display| Stop::Broken(format!("broken: {error}"));
    let queue = QueueName::new("r47").map_err(|bad| broken(&bad))?;
    let unique = UniqueKey::new("daily").map_err(|bad| broken(&bad))?;
    let mut made: Vec<JobId> = Vec::new();
    for _ in 0..DAYS {
        // The one before has ended: time passes with no process on the store.
        stage.restarts();
        stage.moves_time(DAY_MS);
        let store = stage.arena.store();
        let Some(jobs) = store.jobs() else { return Err(Stop::NotApplicable("it keeps no jobs".to_owned())) };
        let id = stage.fresh_job();
        let new = NewJob {
            unique: Some(Unique { key: unique.clone(), window_ms: DAY_MS / 2 }),
            ..NewJob::new(id, queue.clone(), JobKind::new("work").map_err(|bad| broken(&bad))?, "{}")
        };
        let enqueued = stage.drive(jobs.enqueue(call, vec![new])).map_err(|error| broken(&error))?;
        let fresh = enqueued.iter().all(|job| job.as_ref().is_ok_and(|job| job.job_id == id));
        stage.must(fresh, "a unique key is free when its time is over")?;
        let hold = stage.fresh_hold();
        let claim = ClaimJobsRequest {
            queues: vec![(queue.clone(), 1)],
            limit: 1,
            hold_id: hold,
            owner: Owner::new("A").map_err(|bad| broken(&bad))?,
            ttl_ms: stage.ttl_ms(),
            wait_ms: 0,
            waited_before_ms: 0,
        };
        let claimed = stage.drive(jobs.claim(call, claim)).map_err(|error| broken(&error))?;
        let done = claimed.jobs.iter().map(|job| AttemptReport {
            attempt: AttemptRef { job_id: job.id, hold_id: hold, token: job.token },
            report: Report::Complete { result: None },
        });
        let told = stage.drive(jobs.report(call, done.collect())).map_err(|error| broken(&error))?;
        stage.must(told.len() == 1 && told[0].is_ok(), "the job of the day is done")?;
        stage.trace.note("A", "does the job of the day, and ends");
        stage.moves_time(1_000);
        made.push(id);
    }
    let is_kept = |id: &JobId| {
        let found = stage.drive(async { stage.arena.store().jobs()?.get_job(call, *id).await.ok()? });
        found.is_some()
    };
    let over = made.len() - usize::try_from(KEPT_DAYS).unwrap_or(usize::MAX);
    for id in &made[..over] {
        stage.comes("a finished job is removed when its time is over", || !is_kept(id))?;
    }
    // The one between them has come to its time just now.
    stage.must(made[over + 1..].iter().all(is_kept), "no job is removed before its time is over")
}
