//! R23-job, restart with claims in flight: A works on the job; the store restarts; B asks; A's claim expires; B asks
//! again.

use fencehold_test_store::TestCapability;

use super::Race;
use crate::job::JobReply;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R23-job",
    name: "restart with claims in flight",
    promise: "P6 Acknowledged is durable",
    schedule: "A works on the job; the store restarts; B asks; A's claim expires; B asks again",
    must_hold: "B gets nothing early, and the job under a larger token on time",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::Restarts, "it cannot be restarted")?;
    script.has_a_job()?;
    let (a, b) = (script.worker("A"), script.worker("B"));
    let old = a.claims()?;
    script.restarts();
    script.must(b.asks(&b.wish())?.is_none(), "nothing is free because of a restart")?;
    script.must(matches!(a.renews(&old), JobReply::Renewed { .. }), "its worker goes on")?;
    script.crashes(&old)?;
    let new = b.claims()?;
    script.must(new.token > old.token, "tokens grow over a restart")
}
