//! R08-job, steal back, a job: A's renewal is delayed; its claim expires and B claims the job; the renewal arrives.

use super::Race;
use crate::job::JobCall;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R08-job",
    name: "steal back, a job",
    promise: "P3 Renewal is only renewal",
    schedule: "A's renewal is delayed; its claim expires and B claims the job; the renewal arrives",
    must_hold: "it is refused, and B still has the job",
    naive: Some("having been the worker is enough: A retakes"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let old = a.claims()?;
    let delayed = a.begins(JobCall::Renew(old.clone()))?;
    script.crashes(&old)?;
    b.claims()?;
    let told = delayed.goes_on()?;
    script.must(script.job()?.worker.as_deref() == Some("B"), "B still has the job")?;
    script.must(told.is_stale(), "A learns that it is stale")
}
