//! R28-job, two claimers and a sweep, a job: A claim is over; a sweep and two claimers come to the job in turn, all
//! having set out before.

use super::Race;
use crate::job::{JobAct, JobTold};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R28-job",
    name: "two claimers and a sweep, a job",
    promise: "P1 One holder",
    schedule: "A claim is over; a sweep and two claimers come to the job in turn, all having set out before",
    must_hold: "one attempt and one token",
    naive: Some("the sweep frees what the first claimer took, and the second takes it too"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, b, s) = (stage.worker("A"), stage.worker("B"), stage.worker("sweep"));
    let dead = stage.worker("D").claims()?;
    stage.crashes(&dead)?;
    let sweep = s.begins(JobAct::Sweep)?;
    let first = a.begins(JobAct::Claim(a.wish()))?;
    let second = b.begins(JobAct::Claim(b.wish()))?;
    let first = first.goes_on()?;
    sweep.goes_on()?;
    let second = second.goes_on()?;
    stage.must(first.is_claimed(), "the first claimer gets it")?;
    stage.must(second == JobTold::Nothing, "the second does not")?;
    stage.must(stage.job()?.worker.as_deref() == Some("A"), "the first still has it")
}
