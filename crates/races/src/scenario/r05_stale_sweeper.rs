//! R05, stale sweeper: A sweeper stalls with its list; the lease expires and another sweeps; B takes the key; the
//! first goes on.

use super::Race;
use crate::protocol::{Act, Told};
use crate::stage::{Played, Stage};

pub(super) const RACE: Race = Race {
    id: "R05",
    name: "stale sweeper",
    promise: "P5 Check and write are one act",
    schedule: "A sweeper stalls with its list; the lease expires and another sweeps; B takes the key; the first \
               goes on",
    must_hold: "B is untouched",
    naive: Some("it acts on its old list"),
    script,
};

fn script(stage: &Stage) -> Played {
    let (a, b) = (stage.actor("A"), stage.actor("B"));
    let lease = a.acquires()?;
    let stalled = stage.actor("sweep 1").begins(Act::Sweep(stage.key.clone()))?;
    stage.expires(&lease);
    stage.actor("sweep 2").does(Act::Sweep(stage.key.clone()));
    let new = b.acquires()?;
    stalled.goes_on()?;
    stage.must(stage.holder().as_deref() == Some("B"), "the next holder is untouched")?;
    stage.must(matches!(b.renews(&new), Told::Renewed { .. }), "B can renew")
}
