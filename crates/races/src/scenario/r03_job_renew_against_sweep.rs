//! R03-job, renew against sweep, a job: The sweep has A's claim on its list for its deadline; A renews in time; the
//! sweep comes to it.

use super::Race;
use crate::job::{JobCall, JobReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R03-job",
    name: "renew against sweep, a job",
    promise: "P4 The store's clock decides",
    schedule: "The sweep has A's claim on its list for its deadline; A renews in time; the sweep comes to it",
    must_hold: "A's claim lives",
    naive: Some("the sweep trusts the list that it made, and puts a running job back"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.has_a_job()?;
    let (a, s) = (script.worker("A"), script.worker("sweep"));
    let work = a.claims()?;
    let sweep = s.begins(JobCall::Sweep)?;
    script.passes(script.ttl_ms() / 2)?;
    script.must(matches!(a.renews(&work), JobReply::Renewed { .. }), "A renews in time")?;
    script.passes(script.ttl_ms() / 2)?;
    sweep.goes_on()?;
    script.must(script.job()?.worker.as_deref() == Some("A"), "a claim that was renewed in time lives")
}
