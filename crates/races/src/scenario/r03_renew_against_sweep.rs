//! R03, renew against sweep: The sweep has L on its list for its deadline; A renews in time; the sweep comes to L.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R03",
    name: "renew against sweep",
    promise: "P4 The store's clock decides",
    schedule: "The sweep has L on its list for its deadline; A renews in time; the sweep comes to L",
    must_hold: "L lives",
    naive: Some("the sweep trusts the list that it made"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, s) = (stage.actor("A"), stage.actor("sweep"));
    let lease = a.acquires()?;
    let sweep = s.begins(Act::Sweep(stage.key.clone()))?;
    stage.passes(stage.ttl_ms() / 2)?;
    stage.must(matches!(a.renews(&lease), Told::Renewed { .. }), "A renews in time")?;
    stage.passes(stage.ttl_ms() / 2)?;
    sweep.goes_on()?;
    stage.must(stage.holder().as_deref() == Some("A"), "a lease that was renewed in time lives")
}
