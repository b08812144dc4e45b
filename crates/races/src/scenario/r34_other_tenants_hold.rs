//! R34, other tenant's hold: The right hold id and token are shown in the wrong namespace.

use fencehold_core::Namespace;

use super::Race;
use crate::protocol::LeaseReply;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R34",
    name: "other tenant's hold",
    promise: "P5 Check and write are one act",
    schedule: "The right hold id and token are shown in the wrong namespace",
    must_hold: "refused, and the lease is untouched",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    let a = script.actor("A");
    let lease = a.acquires()?;
    let Ok(elsewhere) = Namespace::new("elsewhere") else {
        return script.must(false, "a namespace has a name");
    };
    let told = script.drive(script.ours()?.renew_in(elsewhere, "B", &lease));
    script.trace.note("B", "renews A's hold in another namespace");
    script.must(!matches!(told, LeaseReply::Renewed { .. }), "a hold means nothing in another namespace")?;
    script.must(matches!(a.renews(&lease), LeaseReply::Renewed { .. }), "the lease is untouched")
}
