//! R08, steal back: A's renewal is delayed; the lease expires and B takes the key; the renewal arrives.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R08",
    name: "steal back",
    promise: "P3 Renewal is only renewal",
    schedule: "A's renewal is delayed; the lease expires and B takes the key; the renewal arrives",
    must_hold: "it is refused, and B still holds the key",
    naive: Some("having been the holder is enough: A retakes"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, b) = (script.actor("A"), script.actor("B"));
    let old = a.acquires()?;
    let delayed = a.begins(LeaseCall::Renew(old.clone()))?;
    script.expires(&old);
    b.acquires()?;
    let told = delayed.goes_on()?;
    script.must(script.holder().as_deref() == Some("B"), "B still holds the key")?;
    script.must(matches!(told, LeaseReply::Lost { .. }), "A learns that it lost the lease")
}
