//! R34, other tenant's hold: The right hold id and token are shown in the wrong namespace.

use fencehold_core::Namespace;

use super::Race;
use crate::protocol::Told;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R34",
    name: "other tenant's hold",
    promise: "P5 Check and write are one act",
    schedule: "The right hold id and token are shown in the wrong namespace",
    must_hold: "refused, and the lease is untouched",
    naive: None,
    script,
};

fn script(stage: &Stage) -> Played {
    let a = stage.actor("A");
    let lease = a.acquires()?;
    let Ok(elsewhere) = Namespace::new("elsewhere") else {
        return stage.must(false, "a namespace has a name");
    };
    let told = stage.drive(stage.ours()?.renew_in(elsewhere, "B", &lease));
    stage.trace.note("B", "renews A's hold in another namespace");
    stage.must(!matches!(told, Told::Renewed { .. }), "a hold means nothing in another namespace")?;
    stage.must(matches!(a.renews(&lease), Told::Renewed { .. }), "the lease is untouched")
}
