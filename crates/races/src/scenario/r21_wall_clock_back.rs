//! R21, wall clock − 1 h: The wall clock is set back by an hour; the ttl passes.

use fencehold_test_store::Power;

use super::Race;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R21",
    name: "wall clock − 1 h",
    promise: "P4 The store's clock decides",
    schedule: "The wall clock is set back by an hour; the ttl passes",
    must_hold: "the lease ends on time: nothing is immortal",
    naive: None,
    script,
};

fn script(stage: &Stage) -> Played {
    stage.needs(Power::MovesWall, "its wall clock cannot be set")?;
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let lease = a.acquires()?;
    stage.sets_the_wall_clock(-3_600_000);
    stage.expires(&lease);
    b.acquires().map(drop)
}
