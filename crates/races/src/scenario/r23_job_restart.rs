//! R23-job, restart with claims in flight: A works on the job; the store restarts; B asks; A's claim expires; B asks
//! again.

use fencehold_test_store::Power;

use super::Race;
use crate::job::JobTold;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R23-job",
    name: "restart with claims in flight",
    promise: "P6 Acknowledged is durable",
    schedule: "A works on the job; the store restarts; B asks; A's claim expires; B asks again",
    must_hold: "B gets nothing early, and the job under a larger token on time",
    naive: None,
    script,
};

fn script(stage: &Stage) -> Played {
    stage.needs(Power::Restarts, "it cannot be restarted")?;
    stage.has_a_job()?;
    let (a, b) = (stage.worker("A"), stage.worker("B"));
    let old = a.claims()?;
    stage.restarts();
    stage.must(b.asks(&b.wish())?.is_none(), "nothing is free because of a restart")?;
    stage.must(matches!(a.renews(&old), JobTold::Renewed { .. }), "its worker goes on")?;
    stage.crashes(&old)?;
    let new = b.claims()?;
    stage.must(new.token > old.token, "tokens grow over a restart")
}
