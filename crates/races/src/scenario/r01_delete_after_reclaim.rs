//! R01, delete after reclaim: A's release is on its way; the lease expires; B takes the key; the release arrives.

use super::Race;
use crate::protocol::{LeaseCall, LeaseReply};
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R01",
    name: "delete after reclaim",
    promise: "P5 Check and write are one act",
    schedule: "A's release is on its way; the lease expires; B takes the key; the release arrives",
    must_hold: "B's lease is untouched, and A learns that it was superseded",
    naive: Some("read, compare, delete: B's lease is destroyed"),
    script,
};

fn script(script: &Script) -> ScriptResult {
    let (a, b) = (script.actor("A"), script.actor("B"));
    let old = a.acquires()?;
    let release = a.begins(LeaseCall::Release(old.clone()))?;
    script.expires(&old);
    let new = b.acquires()?;
    let told = release.goes_on()?;
    script.must(script.holder().as_deref() == Some("B"), "B's lease is untouched")?;
    script.must(matches!(told, LeaseReply::Lost { .. }), "A learns that it lost the lease")?;
    script.must(matches!(b.renews(&new), LeaseReply::Renewed { .. }), "B can renew")
}
