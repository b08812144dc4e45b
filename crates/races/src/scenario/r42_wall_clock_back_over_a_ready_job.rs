//! R42, wall clock back over a ready job: A job that waits for a moment becomes ready; the wall clock is set back by an hour;
//! workers ask for it and for the jobs behind it.

use fencehold_contract::CallContext;
use fencehold_contract::job::{ClaimJobsRequest, NewJob, When};
use fencehold_core::job::{JobId, JobKind, JobState, QueueName};
use fencehold_core::{Namespace, Owner};
use fencehold_test_store::Power;

use super::Race;
use crate::stage::{Played, Stage, Stop};

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

fn script(stage: &Stage) -> Played {
    stage.needs(Power::MovesTime, "its time cannot be moved")?;
    stage.needs(Power::MovesWall, "its wall clock cannot be set")?;
    stage.ours()?;
    let store = stage.arena.store();
    let Some(jobs) = store.jobs() else { return Err(Stop::NotApplicable("it keeps no jobs".to_owned())) };
    let call = CallContext::new(Namespace::default());
    let broken = |error: &dyn std::fmt::Display| Stop::Broken(format!("broken: {error}"));
    let queue = QueueName::new("r42").map_err(|bad| broken(&bad))?;
    let kind = JobKind::new("work").map_err(|bad| broken(&bad))?;
    let id = |nth: u8| JobId::from_random(u64::from(nth), [nth; 10]);
    let job = |nth, when| NewJob { when, ..NewJob::new(id(nth), queue.clone(), kind.clone(), "{}") };
    let enqueue = |new: NewJob| {
        let answers = stage.drive(jobs.enqueue(&call, vec![new])).map_err(|error| broken(&error))?;
        stage.must(answers.iter().all(Result::is_ok), "a job can be enqueued")
    };
    let look = |nth| stage.drive(jobs.get_job(&call, id(nth))).map_err(|error| broken(&error));
    enqueue(job(1, When::Now))?;
    let now_ms = look(1)?.map_or(0, |detail| detail.job.enqueued_at_ms);
    enqueue(NewJob {
        options: fencehold_core::job::JobOptions {
            priority: 1,
            ..fencehold_core::job::JobOptions::default()
        },
        ..job(2, When::At { wall_ms: now_ms + LATER_MS })
    })?;
    stage.passes(LATER_MS)?;
    let is_ready = || matches!(look(2), Ok(Some(detail)) if detail.job.state == JobState::Queued);
    stage.comes("a job is ready when its moment has come", is_ready)?;
    stage.sets_the_wall_clock(-3_600_000);
    stage.must(is_ready(), "a job that is ready stays ready")?;
    for (worker, expected) in [("A", 2), ("B", 1)] {
        let claim = ClaimJobsRequest {
            queues: vec![(queue.clone(), 1)],
            limit: 1,
            hold_id: stage.fresh_hold(),
            owner: Owner::new(worker).map_err(|bad| broken(&bad))?,
            ttl_ms: stage.ttl_ms(),
            wait_ms: 0,
            waited_before_ms: 0,
        };
        let claimed = stage.drive(jobs.claim(&call, claim)).map_err(|error| broken(&error))?;
        let given: Vec<JobId> = claimed.jobs.iter().map(|job| job.id).collect();
        stage.must(given == [id(expected)], "every job of the queue is served, in its order")?;
        stage.trace.note(worker, format!("gets job {expected} of the queue"));
    }
    Ok(())
}
