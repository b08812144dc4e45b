//! R28-job, two claimers and a sweep, a job: A claim is over; a sweep and two claimers come to the job in turn, all
//! having set out before.

use super::Race;
use crate::job::{JobCall, JobReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R28-job",
    name: "two claimers and a sweep, a job",
    promise: "P1 One holder",
    schedule: "A claim is over; a sweep and two claimers come to the job in turn, all having set out before",
    must_hold: "one attempt and one token",
    naive: Some("the sweep frees what the first claimer took, and the second takes it too"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, b, s) = (script.worker("A"), script.worker("B"), script.worker("sweep"));
    let dead = script.worker("D").claims()?;
    script.crashes(&dead)?;
    let sweep = s.begins(JobCall::Sweep)?;
    let first = a.begins(JobCall::Claim(a.wish()))?;
    let second = b.begins(JobCall::Claim(b.wish()))?;
    let first = first.goes_on()?;
    sweep.goes_on()?;
    let second = second.goes_on()?;
    script.must(first.is_claimed(), "the first claimer gets it")?;
    script.must(second == JobReply::Nothing, "the second does not")?;
    script.must(script.job()?.worker.as_deref() == Some("A"), "the first still has it")
}
