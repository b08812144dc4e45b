//! R42, wall clock back over a ready job: A job that waits for a moment becomes ready; the wall clock is set back by an hour;
//! workers ask for it and for the jobs behind it.

use fencehold_contract::CallContext;
use fencehold_contract::job::{ClaimJobsRequest, NewJob, When};
use fencehold_core::job::{JobId, JobKind, JobState, QueueName};
use fencehold_core::{Namespace, Owner};
use fencehold_test_store::TestCapability;

use super::Race;
use crate::script::{Script, ScriptEnd, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R42",
    name: "wall clock back over a ready job",
    promise: "P10 Nothing to clean",
    schedule: "A job that waits for a moment becomes ready; the wall clock is set back by an hour; two ask",
    must_hold: "it stays ready, and the job behind it is served too",
    naive: None,
    script,
};

const LATER_MS: u64 = 5_000;

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::MovesTime, "its time cannot be moved")?;
    script.needs(TestCapability::MovesWall, "its wall clock cannot be set")?;
    script.ours()?;
    let store = script.test_store.store();
    let Some(jobs) = store.jobs() else {
        return Err(ScriptEnd::NotApplicable("it keeps no jobs".to_owned()));
    };
    let call = CallContext::new(Namespace::default());
    let broken = |error: &dyn std::fmt::Display| ScriptEnd::Broken(format!("broken: {error}"));
    let queue = QueueName::new("r42").map_err(|bad| broken(&bad))?;
    let kind = JobKind::new("work").map_err(|bad| broken(&bad))?;
    let id = |nth: u8| JobId::from_random(u64::from(nth), [nth; 10]);
    let job = |nth, when| NewJob { when, ..NewJob::new(id(nth), queue.clone(), kind.clone(), "{}") };
    let enqueue = |new: NewJob| {
        let answers = script.drive(jobs.enqueue(&call, vec![new])).map_err(|error| broken(&error))?;
        script.must(answers.iter().all(Result::is_ok), "a job can be enqueued")
    };
    let look = |nth| script.drive(jobs.get_job(&call, id(nth))).map_err(|error| broken(&error));
    enqueue(job(1, When::Now))?;
    let now_ms = look(1)?.map_or(0, |detail| detail.job.enqueued_at_ms);
    enqueue(NewJob {
        options: fencehold_core::job::JobOptions {
            priority: 1,
            ..fencehold_core::job::JobOptions::default()
        },
        ..job(2, When::At { wall_ms: now_ms + LATER_MS })
    })?;
    script.passes(LATER_MS)?;
    let is_ready = || matches!(look(2), Ok(Some(detail)) if detail.job.state == JobState::Queued);
    script.comes("a job is ready when its moment has come", is_ready)?;
    script.sets_the_wall_clock(-3_600_000);
    script.must(is_ready(), "a job that is ready stays ready")?;
    for (worker, expected) in [("A", 2), ("B", 1)] {
        let claim = ClaimJobsRequest {
            queues: vec![(queue.clone(), 1)],
            limit: 1,
            hold_id: script.fresh_hold(),
            owner: Owner::new(worker).map_err(|bad| broken(&bad))?,
            ttl_ms: script.ttl_ms(),
            wait_ms: 0,
            waited_before_ms: 0,
        };
        let claimed = script.drive(jobs.claim(&call, claim)).map_err(|error| broken(&error))?;
        let given: Vec<JobId> = claimed.jobs.iter().map(|job| job.id).collect();
        script.must(given == [id(expected)], "every job of the queue is served, in its order")?;
        script.trace.note(worker, format!("gets job {expected} of the queue"));
    }
    Ok(())
}
