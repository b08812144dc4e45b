//! R43, clock forward while a claim waits: A stands in line; the store's clock steps forward; A gets a job, and never
//! renews.

use fencehold_test_store::Power;

use super::Race;
use crate::job::{JobTold, Work};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R43",
    name: "clock forward while a claim waits",
    promise: "P4 The store's clock decides",
    schedule: "A stands in line; the store's clock steps forward; A gets a job, and never renews",
    must_hold: "A's deadline counts from the answer: A has stopped before B can get the job",
    naive: Some("A counts the step as time in line, and works on while B has the job"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.needs(Power::MovesTime, "its time cannot be moved")?;
    stage.keeps_jobs()?;
    let (a, b) = (stage.worker("A"), stage.worker("B"));
    let waiting = a.waits()?;
    // No time passes for A itself.
    stage.steps_forward(stage.ttl_ms() * 2);
    stage.has_a_job()?;
    let JobTold::Claimed { claim, .. } = waiting.told()? else {
        return stage.must(false, "one who waits is given the job");
    };
    let work = Work { hold: claim.hold, owner: claim.owner.clone(), token: claim.token };
    let stops_after_ms = stage.jobs.relies_for_ms(&claim);
    let lasts_ms = stage.job()?.remaining_ms;
    stage.crashes(&work)?;
    stage.must(b.claims()?.token > work.token, "the job goes on without A")?;
    stage.must(stops_after_ms <= lasts_ms, "A has stopped before B can get the job")
}
