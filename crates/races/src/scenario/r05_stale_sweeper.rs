//! R05, stale sweeper: A sweeper stalls with its list; the lease expires and another sweeps; B takes the key; the
//! first goes on.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R05",
    name: "stale sweeper",
    promise: "P5 Check and write are one act",
    schedule: "A sweeper stalls with its list; the lease expires and another sweeps; B takes the key; the first \
               goes on",
    must_hold: "B is untouched",
    naive: Some("it acts on its old list"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, b) = (script.actor("A"), script.actor("B"));
    let lease = a.acquires()?;
    let stalled = script.actor("sweep 1").begins(LeaseCall::Sweep(script.key.clone()))?;
    script.expires(&lease);
    script.actor("sweep 2").does(LeaseCall::Sweep(script.key.clone()));
    let new = b.acquires()?;
    stalled.goes_on()?;
    script.must(script.holder().as_deref() == Some("B"), "the next holder is untouched")?;
    script.must(matches!(b.renews(&new), LeaseReply::Renewed { .. }), "B can renew")
}
