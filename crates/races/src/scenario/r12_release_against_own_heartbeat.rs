//! R12, release against own heartbeat: A's heartbeat is on its way; A releases; the heartbeat arrives.

use fencehold_core::lease::LeaseOutcome;

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R12",
    name: "release against own heartbeat",
    promise: "P3 Renewal is only renewal",
    schedule: "A's heartbeat is on its way; A releases; the heartbeat arrives",
    must_hold: "the lease stays released, and the next one gets the key",
    naive: Some("revived: it is not renewed, and all wait"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, b) = (script.actor("A"), script.actor("B"));
    let lease = a.acquires()?;
    let heartbeat = a.begins(LeaseCall::Renew(lease.clone()))?;
    script.must(matches!(a.releases(&lease), LeaseReply::Released), "the holder can give it back")?;
    let told = heartbeat.goes_on()?;
    script.must(script.holder().is_none(), "a released lease stays released")?;
    script.must(told.is_lost(LeaseOutcome::Released), "the heartbeat learns: released")?;
    b.acquires().map(drop)
}
