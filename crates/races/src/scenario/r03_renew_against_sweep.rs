//! R03, renew against sweep: The sweep has L on its list for its deadline; A renews in time; the sweep comes to L.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R03",
    name: "renew against sweep",
    promise: "P4 The store's clock decides",
    schedule: "The sweep has L on its list for its deadline; A renews in time; the sweep comes to L",
    must_hold: "L lives",
    naive: Some("the sweep trusts the list that it made"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, s) = (script.actor("A"), script.actor("sweep"));
    let lease = a.acquires()?;
    let sweep = s.begins(LeaseCall::Sweep(script.key.clone()))?;
    script.passes(script.ttl_ms() / 2)?;
    script.must(matches!(a.renews(&lease), LeaseReply::Renewed { .. }), "A renews in time")?;
    script.passes(script.ttl_ms() / 2)?;
    sweep.goes_on()?;
    script.must(script.holder().as_deref() == Some("A"), "a lease that was renewed in time lives")
}
