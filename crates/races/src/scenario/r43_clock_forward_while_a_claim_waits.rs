//! R43, clock forward while a claim waits: A stands in line; the store's clock steps forward; A gets a job, and never
//! renews.

use fencehold_test_store::TestCapability;

use super::Race;
use crate::job::{HeldClaim, JobReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R43",
    name: "clock forward while a claim waits",
    promise: "P4 The store's clock decides",
    schedule: "A stands in line; the store's clock steps forward; A gets a job, and never renews",
    must_hold: "A's deadline counts from the answer: A has stopped before B can get the job",
    naive: Some("A counts the step as time in line, and works on while B has the job"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::MovesTime, "its time cannot be moved")?;
    script.keeps_jobs()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let waiting = a.waits()?;
    // No time passes for A itself.
    script.steps_forward(script.ttl_ms() * 2);
    script.has_a_job()?;
    let JobReply::Claimed { claim, .. } = waiting.told()? else {
        return script.must(false, "one who waits is given the job");
    };
    let work = HeldClaim { hold: claim.hold, owner: claim.owner.clone(), token: claim.token };
    let stops_after_ms = script.jobs.relies_for_ms(&claim);
    let lasts_ms = script.job()?.remaining_ms;
    script.crashes(&work)?;
    script.must(b.claims()?.token > work.token, "the job goes on without A")?;
    script.must(stops_after_ms <= lasts_ms, "A has stopped before B can get the job")
}
