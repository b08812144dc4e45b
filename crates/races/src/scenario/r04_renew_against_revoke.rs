//! R04, renew against revoke: A's renewal has set out; P revokes; the renewal arrives.

use fencehold_core::lease::LeaseOutcome;

use super::Race;
use crate::protocol::LeaseCall;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R04",
    name: "renew against revoke",
    promise: "P3 Renewal is only renewal",
    schedule: "A's renewal has set out; P revokes; the renewal arrives",
    must_hold: "it is refused: revoked, and the key is free",
    naive: Some("the renewal writes back what it read"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, p) = (script.actor("A"), script.actor("P"));
    let lease = a.acquires()?;
    let renewal = a.begins(LeaseCall::Renew(lease.clone()))?;
    p.revokes();
    let told = renewal.goes_on()?;
    script.must(script.holder().is_none(), "a revoked lease stays revoked")?;
    script.must(told.is_lost(LeaseOutcome::Revoked), "A learns that it was revoked")
}
