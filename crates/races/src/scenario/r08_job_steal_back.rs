//! R08-job, steal back, a job: A's renewal is delayed; its claim expires and B claims the job; the renewal arrives.

use super::Race;
use crate::job::JobAct;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R08-job",
    name: "steal back, a job",
    promise: "P3 Renewal is only renewal",
    schedule: "A's renewal is delayed; its claim expires and B claims the job; the renewal arrives",
    must_hold: "it is refused, and B still has the job",
    naive: Some("having been the worker is enough: A retakes"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, b) = (stage.worker("A"), stage.worker("B"));
    let old = a.claims()?;
    let delayed = a.begins(JobAct::Renew(old.clone()))?;
    stage.crashes(&old)?;
    b.claims()?;
    let told = delayed.goes_on()?;
    stage.must(stage.job()?.worker.as_deref() == Some("B"), "B still has the job")?;
    stage.must(told.is_stale(), "A learns that it is stale")
}
