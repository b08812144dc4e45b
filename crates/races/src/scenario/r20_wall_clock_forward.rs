//! R20, wall clock + 1 h: The wall clock is set forward by an hour.

use fencehold_test_store::TestCapability;

use super::Race;
use crate::protocol::LeaseReply;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R20",
    name: "wall clock + 1 h",
    promise: "P4 The store's clock decides",
    schedule: "The wall clock is set forward by an hour",
    must_hold: "all leases live on",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::MovesWall, "its wall clock cannot be set")?;
    let (a, b) = (script.actor("A"), script.actor("B"));
    let lease = a.acquires()?;
    script.sets_the_wall_clock(3_600_000);
    script.must(matches!(b.asks(b.wish()), LeaseReply::Held { .. }), "the lease lives on")?;
    script.must(matches!(a.renews(&lease), LeaseReply::Renewed { .. }), "its holder can renew")
}
