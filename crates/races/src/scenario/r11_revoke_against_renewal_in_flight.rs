//! R11, revoke against a renewal in flight: A's renewal is in flight; P revokes and B takes the key; the renewal
//! lands.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R11",
    name: "revoke against a renewal in flight",
    promise: "P9 Force leaves a trace",
    schedule: "A's renewal is in flight; P revokes and B takes the key; the renewal lands",
    must_hold: "it is refused, B holds the key, and a token was consumed by force",
    naive: Some("the lease is revived over B's"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, b, p) = (script.actor("A"), script.actor("B"), script.actor("P"));
    let old = a.acquires()?;
    let renewal = a.begins(LeaseCall::Renew(old.clone()))?;
    let forced = p.revokes();
    let new = b.acquires()?;
    let told = renewal.goes_on()?;
    script.must(script.holder().as_deref() == Some("B"), "B holds the key")?;
    script.must(matches!(told, LeaseReply::Lost { .. }), "A learns that it lost the lease")?;
    let LeaseReply::Revoked { consumed } = forced else { return script.must(false, "force ends the lease") };
    script.must(old.token < consumed && consumed < new.token, "force consumed a token of its own")
}
