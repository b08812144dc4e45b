//! R31, poison job: A job kills every holder.

use fencehold_core::job::{JobOptions, JobState};

use super::Race;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R31",
    name: "poison job",
    promise: "P10 Nothing to clean",
    schedule: "A job kills every holder",
    must_hold: "it is quarantined after max_crashes, and harms no worker after that",
    naive: Some("it loops for ever"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job_on(JobOptions { max_crashes: 2, ..JobOptions::default() })?;
    let (a, b, c) = (script.worker("A"), script.worker("B"), script.worker("C"));
    script.crashes(&a.claims()?)?;
    script.claim_runs_out(&b.claims()?)?;
    script.must(c.asks(&c.wish())?.is_none(), "no other worker gets what has killed two")?;
    script.must(script.job()?.state == JobState::Quarantined, "the job is kept for people")
}
