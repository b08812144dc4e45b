//! R21, wall clock − 1 h: The wall clock is set back by an hour; the ttl passes.

use fencehold_test_store::TestCapability;

use super::Race;
use crate::script::{Script, ScriptResult};

pub(super) const RACE: Race = Race {
    id: "R21",
    name: "wall clock − 1 h",
    promise: "P4 The store's clock decides",
    schedule: "The wall clock is set back by an hour; the ttl passes",
    must_hold: "the lease ends on time: nothing is immortal",
    naive: None,
    script,
};

fn script(script: &Script) -> ScriptResult {
    script.needs(TestCapability::MovesWall, "its wall clock cannot be set")?;
    let (a, b) = (script.actor("A"), script.actor("B"));
    let lease = a.acquires()?;
    script.sets_the_wall_clock(-3_600_000);
    script.expires(&lease);
    b.acquires().map(drop)
}
