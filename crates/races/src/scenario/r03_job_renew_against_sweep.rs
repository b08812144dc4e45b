//! R03-job, renew against sweep, a job: The sweep has A's claim on its list for its deadline; A renews in time; the
//! sweep comes to it.

use super::Race;
use crate::job::{JobAct, JobTold};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R03-job",
    name: "renew against sweep, a job",
    promise: "P4 The store's clock decides",
    schedule: "The sweep has A's claim on its list for its deadline; A renews in time; the sweep comes to it",
    must_hold: "A's claim lives",
    naive: Some("the sweep trusts the list that it made, and puts a running job back"),
    script,
};

fn script(stage: &Stage) -> Played {
    stage.has_a_job()?;
    let (a, s) = (stage.worker("A"), stage.worker("sweep"));
    let work = a.claims()?;
    let sweep = s.begins(JobAct::Sweep)?;
    stage.passes(stage.ttl_ms() / 2)?;
    stage.must(matches!(a.renews(&work), JobTold::Renewed { .. }), "A renews in time")?;
    stage.passes(stage.ttl_ms() / 2)?;
    sweep.goes_on()?;
    stage.must(stage.job()?.worker.as_deref() == Some("A"), "a claim that was renewed in time lives")
}
