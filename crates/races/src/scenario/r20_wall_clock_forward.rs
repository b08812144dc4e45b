//! R20, wall clock + 1 h: The wall clock is set forward by an hour.

use fencehold_test_store::Power;

use super::Race;
use crate::protocol::Told;
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R20",
    name: "wall clock + 1 h",
    promise: "P4 The store's clock decides",
    schedule: "The wall clock is set forward by an hour",
    must_hold: "all leases live on",
    naive: None,
    script,
};

fn script(stage: &Stage) -> Played {
    stage.needs(Power::MovesWall, "its wall clock cannot be set")?;
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let lease = a.acquires()?;
    stage.sets_the_wall_clock(3_600_000);
    stage.must(matches!(b.asks(b.wish()), Told::Held { .. }), "the lease lives on")?;
    stage.must(matches!(a.renews(&lease), Told::Renewed { .. }), "its holder can renew")
}
