//! R47, owners that live for a second: Every day a process comes, works off one job, and ends after a second. Nothing serves the
//! store in between.

use fencehold_contract::job::{AttemptRef, AttemptReport, ClaimJobsRequest, NewJob, Report, Unique};
use fencehold_core::Owner;
use fencehold_core::job::{JobId, JobKind, QueueName, UniqueKey};
use fencehold_core::limits::FINISHED_KEPT_MS;
use fencehold_test_store::TestCapability;

use super::Race;
use crate::script::{Script, ScriptEnd, ScriptResult};

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

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::MovesTime, "its time cannot be moved")?;
    script.needs(TestCapability::Restarts, "it cannot be restarted")?;
    script.keeps_jobs()?;
    let call = &script.ours()?.call;
    let broken = |error: &dyn std::fmt::Display| ScriptEnd::Broken(format!("broken: {error}"));
    let queue = QueueName::new("r47").map_err(|bad| broken(&bad))?;
    let unique = UniqueKey::new("daily").map_err(|bad| broken(&bad))?;
    let mut made: Vec<JobId> = Vec::new();
    for _ in 0..DAYS {
        // The one before has ended: time passes with no process on the store.
        script.restarts();
        script.moves_time(DAY_MS);
        let store = script.test_store.store();
        let Some(jobs) = store.jobs() else {
            return Err(ScriptEnd::NotApplicable("it keeps no jobs".to_owned()));
        };
        let id = script.fresh_job();
        let new = NewJob {
            unique: Some(Unique { key: unique.clone(), window_ms: DAY_MS / 2 }),
            ..NewJob::new(id, queue.clone(), JobKind::new("work").map_err(|bad| broken(&bad))?, "{}")
        };
        let enqueued = script.drive(jobs.enqueue(call, vec![new])).map_err(|error| broken(&error))?;
        let fresh = enqueued.iter().all(|job| job.as_ref().is_ok_and(|job| job.job_id == id));
        script.must(fresh, "a unique key is free when its time is over")?;
        let hold = script.fresh_hold();
        let claim = ClaimJobsRequest {
            queues: vec![(queue.clone(), 1)],
            limit: 1,
            hold_id: hold,
            owner: Owner::new("A").map_err(|bad| broken(&bad))?,
            ttl_ms: script.ttl_ms(),
            wait_ms: 0,
            waited_before_ms: 0,
        };
        let claimed = script.drive(jobs.claim(call, claim)).map_err(|error| broken(&error))?;
        let done = claimed.jobs.iter().map(|job| AttemptReport {
            attempt: AttemptRef { job_id: job.id, hold_id: hold, token: job.token },
            report: Report::Complete { result: None },
        });
        let told = script
            .drive(jobs.report(call, done.collect()))
            .map_err(|error| broken(&error))?;
        script.must(told.len() == 1 && told[0].is_ok(), "the job of the day is done")?;
        script.trace.note("A", "does the job of the day, and ends");
        script.moves_time(1_000);
        made.push(id);
    }
    let is_kept = |id: &JobId| {
        let found = script.drive(async { script.test_store.store().jobs()?.get_job(call, *id).await.ok()? });
        found.is_some()
    };
    let over = made.len() - usize::try_from(KEPT_DAYS).unwrap_or(usize::MAX);
    for id in &made[..over] {
        script.comes("a finished job is removed when its time is over", || !is_kept(id))?;
    }
    // The one between them has come to its time just now.
    script.must(made[over + 1..].iter().all(is_kept), "no job is removed before its time is over")
}
